"""Contracts of all plug-ins as plain checks, for `lce check` and for tests."""
