"""Plans of a study: its steps, their price, and the differences its results could show."""
