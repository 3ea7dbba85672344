"""The command `lce`: command-line parsing, the commands, and what they print."""
