"""`lce rope`: what follows from a RoPE base, a geometry and lengths, without a model."""
