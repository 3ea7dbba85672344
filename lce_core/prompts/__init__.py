"""Show the prompts of a finished cell, for `lce prompt` and the dashboard.

The store saves the answers of a cell, but not its prompts, only their lengths and one sha256. The
benchmark builds the prompts again; if the sha256 differs, the user gets an error instead.
"""
