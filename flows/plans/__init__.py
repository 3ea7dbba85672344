"""What a study will do before it does it: its steps, their price, what its results could show."""
