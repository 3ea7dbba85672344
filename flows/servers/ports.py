"""Check that a loopback port is free, or find out which process listens on it."""

import contextlib
import socket

import psutil

from lce_core.errors import SpecError

LOOPBACK = "127.0.0.1"


def require_free(port: int, option: str) -> None:
    """Refuse a port that is taken, not permitted or out of range; `option` sets it."""
    if not 1 <= port <= 65535:
        raise SpecError(option, port, "a port from 1 to 65535", "choose another port")
    try:
        with socket.socket() as probe:
            # Without SO_REUSEADDR the port stays blocked for a minute after a server has stopped,
            # by connections in state TIME_WAIT.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((LOOPBACK, port))
    except PermissionError:
        raise SpecError(
            option,
            f"{port}, a port that only an administrator may use",
            "a port of 1024 or more",
            "choose a higher port",
        ) from None
    except OSError:
        raise SpecError(
            option,
            f"{port}, on which {holder(port)} listens",
            "a free port",
            f"stop that process (for an `lce up`: run `lce down` with the same LCE_HOME), or"
            f" choose another port with {option}",
        ) from None


def holder(port: int) -> str:
    with contextlib.suppress(psutil.AccessDenied):
        for connection in psutil.net_connections(kind="tcp"):
            address = connection.laddr
            listens = connection.status == psutil.CONN_LISTEN and address and address.port == port
            if listens and connection.pid:
                with contextlib.suppress(psutil.Error):
                    return f"{psutil.Process(connection.pid).name()} (PID {connection.pid})"
    return "a process of another user"
