"""Shared code of benchmarks that generate answers to prompts and score them."""
