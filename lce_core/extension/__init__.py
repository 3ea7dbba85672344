"""Apply a context-extension method to a model; training and evaluation use `extending.extend`."""
