"""The store: one folder on disk with the results of all steps, shared by runs, hosts and users."""
