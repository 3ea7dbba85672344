"""Alone in its folder, which Streamlit makes the first to import from: it hides no module."""
