"""Marks and axes as inline SVG; what they show comes as plain values."""
