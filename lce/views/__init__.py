"""Show a study's plan and state: `lce plan`, `lce status`, `lce watch`."""
