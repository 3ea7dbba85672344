"""What no user may read, whatever dies."""

from __future__ import annotations

DUMPS = ("Traceback", "ERROR", "Error")
