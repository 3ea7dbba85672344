"""Evaluate a model on text: token losses, generated answers and the scores computed from them."""
