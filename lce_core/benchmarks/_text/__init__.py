"""Shared code of benchmarks that score running text."""
