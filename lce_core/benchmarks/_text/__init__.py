"""Shared code of benchmarks that score the model's loss on running text."""
