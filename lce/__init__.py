"""The command `lce`: its command line, its commands and their output."""
