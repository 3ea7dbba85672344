"""`ProcessEnd`, through which a command tells the entry point how its process must exit."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class ProcessEnd:
    """Exit code that the process of a command must have.

    `lce run` and `lce worker` set the field, and the entry point of `lce` reads it afterwards.
    """

    skips_handlers: bool = False
    """True to exit without running atexit handlers, because Prefect's server or Ray's head died.

    Without its server, Prefect's handler retries each pending record for minutes. Without its head,
    Ray's handler has crashed with a segmentation fault.
    """
