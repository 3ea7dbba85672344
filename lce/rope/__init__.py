"""`lce rope`: compute properties of a RoPE base, a geometry and lengths, without a model."""
