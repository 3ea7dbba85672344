"""Folder that must contain only `script.py`.

Streamlit puts this folder first in `sys.path`, so another module here would hide modules of the
same name.
"""
