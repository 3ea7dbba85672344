"""`lce rope`: properties of RoPE frequencies, computed without loading a model."""
