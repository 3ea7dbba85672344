"""What a finished cell asked: its prompts, built again by its benchmark, compared with the store.

The store keeps answers and references, and of prompts their lengths and one digest for the cell.
Prompts follow from benchmark, task, length, seed, tokenizer and data, so the code that asked them
makes them again. Whoever looks sees those that were asked, or why there are none to see: never
others.
"""
