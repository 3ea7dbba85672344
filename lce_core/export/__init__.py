"""Checkpoints that others can run: a method's frequencies in config.json, and the weights as is.

`form` says which configuration is the method, or why none is; `folder` writes what stock
transformers loads; `card` writes its README.md.
"""
