"""Turn text into rows: sampling, tokenising, packing, and the held-out text of evaluation."""
