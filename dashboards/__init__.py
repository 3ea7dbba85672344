"""Pictures of the results. They read the catalog and nothing else."""
