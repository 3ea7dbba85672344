"""What benchmarks share that ask prompts and score the answers."""
