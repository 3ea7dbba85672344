"""Apply a context-extension method to a model; training and evaluation call `extending.extend`."""
