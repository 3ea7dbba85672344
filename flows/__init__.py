"""Flows, runs and servers: order and progress, no computation."""
