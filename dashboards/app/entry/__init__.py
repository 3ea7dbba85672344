"""Folder that must contain only the script.

Streamlit imports from it first, so another module in it would hide one of the same name.
"""
