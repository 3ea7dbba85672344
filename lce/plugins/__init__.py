"""Commands for plug-in authors: list, describe, check, and start from a template."""
