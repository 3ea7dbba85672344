"""Tell the entry point of `lce` how the process must exit after a command."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class ProcessEnd:
    """Tells the entry point how to exit. `lce run` and `lce worker` get this object and set it."""

    skips_handlers: bool = False
    """True if the Prefect server or the Ray cluster died under its client.

    At exit Prefect's client retries each pending record for minutes, and Ray's client has crashed
    with a segmentation fault. The process then skips the handlers that run at exit.
    """
