"""Plug-ins for their authors: listed, described, checked, begun from a template."""
