"""Ports for servers that are told where to listen."""

import contextlib
import random
import socket

_BELOW_EPHEMERAL = range(20_000, 32_000)
"""Linux hands out ports from 32768 on: there, one that is free now is taken by chance."""


def unused_port() -> int:
    """A port of loopback on which nothing listens, and that nothing gets without asking for it."""
    while True:
        port = random.choice(_BELOW_EPHEMERAL)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
