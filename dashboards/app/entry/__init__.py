"""Folder that must contain only `script.py`.

Streamlit puts this folder first in Python's search path, so another module here would hide modules
of the same name.
"""
