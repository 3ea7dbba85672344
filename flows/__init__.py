"""Flows, the command line and the servers they need: order and presentation, no computation."""
