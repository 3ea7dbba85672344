"""Show the prompts of a finished cell, for `lce prompt` and the dashboard.

Of a cell's prompts, the store saves only the lengths and one sha256. The benchmark therefore builds
the prompts again; if their sha256 differs from the saved one, an error is raised.
"""
