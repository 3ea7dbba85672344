"""Evaluate a model on text: losses, generated tokens and the scores computed from them."""
