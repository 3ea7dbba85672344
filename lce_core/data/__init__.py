"""Turn text into tokens: training rows (sampled, tokenised, packed), and text for evaluation."""
