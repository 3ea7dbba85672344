"""The one training loop, from the job to the checkpoint."""
