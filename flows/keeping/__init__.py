"""What becomes of results: locked, verified, looked into, exported, cleaned away."""
