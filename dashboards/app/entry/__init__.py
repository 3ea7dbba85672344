"""Folder of the script alone: Streamlit imports from it first, so it must hide no other module."""
