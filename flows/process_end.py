"""The way in which the entry point of `lce` exits after a command."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class ProcessEnd:
    """Set by `lce run` and `lce worker`, and read by the entry point of `lce` when they return."""

    skips_handlers: bool = False
    """True if the process must skip its exit handlers, because Prefect's or Ray's server died.

    Without a server, Prefect's handler retries each pending record for minutes, and Ray's handler
    has crashed with a segmentation fault.
    """
