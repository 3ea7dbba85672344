"""Resume points: their files on disk and the training state inside them."""
