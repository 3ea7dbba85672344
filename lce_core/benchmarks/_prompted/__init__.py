"""Shared code of benchmarks that ask prompts and score the answers."""
