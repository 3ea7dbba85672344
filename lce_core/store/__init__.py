"""What is kept and how it is found again: steps, their identity, artifacts, records, leases."""
