"""Loopback ports: a free one, and who holds one that is not."""

from __future__ import annotations

import contextlib
import socket

import psutil

from lce_core.errors import SpecError

LOOPBACK = "127.0.0.1"
"""The only address our servers bind."""


def free_port() -> int:
    """A loopback port that was free a moment ago; another process may still be quicker."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def require_free(port: int, option: str) -> None:
    """Checks that a server can be bound to `port`.

    Raises:
      SpecError: out of range, not permitted, or taken; names who holds it.
    """
    if not 1 <= port <= 65535:
        raise SpecError(option, port, "a port from 1 to 65535", "choose another")
    try:
        with socket.socket() as probe:
            # Connections of a server stopped a moment ago do not count as taken.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((LOOPBACK, port))
    except PermissionError:
        raise SpecError(
            option,
            f"{port}, a port of the administrator's",
            "a port of 1024 or more",
            "choose a higher one",
        ) from None
    except OSError:
        raise SpecError(
            option,
            f"{port}, on which {holder(port)} listens",
            "a free port",
            f"stop that process, or choose another port with {option}; if it is a"
            " forgotten `lce up`, run `lce down` with its LCE_HOME",
        ) from None


def holder(port: int) -> str:
    """Name and pid of the process listening on `port`, as far as this user may see it."""
    with contextlib.suppress(psutil.AccessDenied):
        for connection in psutil.net_connections(kind="tcp"):
            address = connection.laddr
            listens = connection.status == psutil.CONN_LISTEN and address and address.port == port
            if listens and connection.pid:
                with contextlib.suppress(psutil.Error):
                    return f"{psutil.Process(connection.pid).name()} (PID {connection.pid})"
    return "a process of another user"
