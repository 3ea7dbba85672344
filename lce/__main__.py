"""Lets `python -m lce` stand for `lce` where the environment's bin folder is not on the PATH."""

from lce.cli import main

if __name__ == "__main__":
    main()
