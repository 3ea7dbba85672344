"""Draw charts as inline SVG from plain values."""
