"""What benchmarks share that score running text."""
