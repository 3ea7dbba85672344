"""Resume points: how they lie on disk, and what is in them."""
