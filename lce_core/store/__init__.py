"""The store on disk: steps and their fingerprints, artifacts, records and leases."""
