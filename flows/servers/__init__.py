"""Processes beside a run, and whether this machine is ready for them."""
