"""Server processes that accompany runs, and the checks of this machine (`lce doctor`)."""
