"""Puts a method on a model."""
