"""Loopback ports: find a free one, and name the process that holds a taken one."""

from __future__ import annotations

import contextlib
import socket

import psutil

from lce_core.errors import SpecError

LOOPBACK = "127.0.0.1"
"""The only address that our servers bind."""


def free_port() -> int:
    """Return a loopback port that is free now; another process may still take it first."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def require_free(port: int, option: str) -> None:
    """Raise an error unless a server can bind to `port`.

    Raises:
      SpecError: if the port is out of range, not permitted, or taken; names its holder.
    """
    if not 1 <= port <= 65535:
        raise SpecError(option, port, "a port from 1 to 65535", "choose another")
    try:
        with socket.socket() as probe:
            # Without SO_REUSEADDR, connections in TIME_WAIT of a server stopped a moment ago block
            # the port.
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
    """Return name and pid of the process that listens on `port`, if visible to this user."""
    with contextlib.suppress(psutil.AccessDenied):
        for connection in psutil.net_connections(kind="tcp"):
            address = connection.laddr
            listens = connection.status == psutil.CONN_LISTEN and address and address.port == port
            if listens and connection.pid:
                with contextlib.suppress(psutil.Error):
                    return f"{psutil.Process(connection.pid).name()} (PID {connection.pid})"
    return "a process of another user"
