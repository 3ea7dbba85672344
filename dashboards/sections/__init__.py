"""Sections of the report. Each renders contents as HTML; "" if it has nothing to show.

The sections in `about` and `header` take the rows of a whole study, all others those of one base
model (`Contents.of`).
"""
