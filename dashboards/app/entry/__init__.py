"""Folder of the script alone: Streamlit puts it first in sys.path, so it must hide no module."""
