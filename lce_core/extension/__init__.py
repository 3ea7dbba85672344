"""Apply a context-extension method to a model."""
