"""Show the prompts of a finished cell, for `lce prompt` and the dashboard.

A cell is one evaluation of a study: a model, method, task, length and seed. The store saves the
answers of a cell. Of its prompts it saves only the lengths and one sha256. The benchmark therefore
builds the prompts again; if their sha256 differs from the saved one, an error is raised.
"""
