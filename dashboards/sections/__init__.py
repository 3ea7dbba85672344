"""Sections of the report. Each renders a study's contents as HTML; "" if it has nothing to show."""
