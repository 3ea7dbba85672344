"""Rebuild the prompts of a finished cell and verify them against the store.

The store keeps answers and references, but of the prompts only their lengths and one digest per
cell. Prompts depend on benchmark, task, length, seed, tokenizer and data, so the benchmark can
build them again. A user either sees exactly the prompts that the cell used, or an error that says
why they are not available.
"""
