"""Run the pull loop on Ray: cluster nodes provide slots, actors are workers. Imports Ray lazily."""
