"""Folder that must contain only the script.

Streamlit puts it first on sys.path, so another module in it would hide one of the same name.
"""
