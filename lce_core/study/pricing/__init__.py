"""What a plan takes: seconds on a device, corrected by what has finished, and the time left."""
