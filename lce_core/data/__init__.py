"""From text to rows: sampling, tokenising, packing, and the held-out text of evaluation."""
