"""Where the checkout under test lies."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
