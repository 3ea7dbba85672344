"""The studies in a browser, live: `lce dashboard`. It knows the catalog and nothing else."""
