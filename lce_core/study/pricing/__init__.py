"""Predict seconds per step on a device, calibrate on finished steps, estimate the time left."""
