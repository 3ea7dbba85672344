"""How the process of an `lce` command ends."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class ProcessEnd:
    """How the process of a command must exit.

    `lce run` and `lce worker` set the field, and the entry point of `lce` reads it afterwards.
    """

    skips_handlers: bool = False
    """True to exit without running atexit handlers, because Prefect's server or Ray's head died.

    Without its server, Prefect's handler retries each pending record for minutes. Without its head,
    Ray's handler has crashed with a segmentation fault.
    """
