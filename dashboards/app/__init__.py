"""Live dashboard in a browser: `lce dashboard`. The catalog is its only data source."""
