"""Flows, the command line and the servers: order and presentation, no computation."""
