"""Predict how long steps take on a device, and how much time a run has left."""
