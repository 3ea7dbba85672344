"""Sections of the report. Each renders HTML from a study's contents, or "" if it is empty."""
