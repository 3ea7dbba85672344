"""`ProcessEnd`, through which a command tells the entry point how its process must exit."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class ProcessEnd:
    """Exit code of a command's process, which the entry point of `lce` reads afterwards."""

    skips_handlers: bool = False
    """Exit without atexit handlers, because Prefect's server or Ray's head died. Without its
    server, Prefect's handler retries each pending record for minutes. Without its head, Ray's
    handler has crashed with a segmentation fault."""
