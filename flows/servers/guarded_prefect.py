"""Prefect's server behind a guard: `python -m flows.servers.guarded_prefect PORT`.

The process serves the same API, pages and services as `prefect server start`. The guard
(`lce_core.access`) refuses requests with foreign Host or Origin headers or without the secret.
Prefect's API itself also requires the secret, so a browser's cookie alone gives no access to the
API. The secret is passed in the environment, because every user of the machine can read command
lines.
"""

import os
import sys
from pathlib import Path

from flows.servers.ports import LOOPBACK
from lce_core.access import Guard, auth_string, authorization, new_secret
from lce_core.store.odd_files import set_aside
from tasks.sqlite_damage import Schema, sqlite_damage

AUTH = "PREFECT_SERVER_API_AUTH_STRING"
UI_PASSWORD = "prefect-password"
"""Key under which both versions of Prefect's UI keep the password in the browser's storage."""

_SCHEMA = Schema(
    program="Prefect",
    package="prefect",
    migrations="server/database/_migrations/versions/sqlite",
    tables=("alembic_version",),  # Prefect's first table: its server may still be starting
    migrates=True,
)


def command(port: int) -> list[str]:
    return [sys.executable, "-m", "flows.servers.guarded_prefect", str(port)]


def settings(url: str, secret: str) -> dict[str, str]:
    return {
        "PREFECT_API_URL": url,
        AUTH: auth_string(secret),
        # A relative address works with both names of the loopback, localhost and 127.0.0.1.
        "PREFECT_UI_API_URL": "/api",
        "PREFECT_SERVER_CORS_ALLOWED_ORIGINS": url.removesuffix("/api"),
    }


def client_auth(secret: str) -> dict[str, str]:
    return {"PREFECT_API_AUTH_STRING": auth_string(secret)} if secret else {}


def prefect_database(home: Path) -> Path:
    """Return the path of the history of runs. No result depends on this database."""
    return home / "prefect" / "prefect.db"


def prefect_damage(home: Path) -> str | None:
    return sqlite_damage(prefect_database(home), _SCHEMA)


def mend_prefect(home: Path) -> None:
    """Rename an unusable database before a server starts, so that the server creates a new one."""
    # Never while a server runs: it would go on writing to the renamed file.
    if why := prefect_damage(home):
        set_aside(prefect_database(home), why)


def main(port: int) -> None:
    import uvicorn
    from prefect.server.api.collections import KNOWN_VIEWS
    from prefect.server.api.server import create_app
    from prefect.settings import get_current_settings

    # Prefect would fetch its list of worker types from GitHub. If the fetch fails, Prefect uses its
    # bundled list, so replace the address by one that always fails.
    KNOWN_VIEWS.update(dict.fromkeys(KNOWN_VIEWS, "file:///"))
    server = get_current_settings().server
    page_secret = new_secret()
    guarded = Guard(
        create_app(final=True),
        os.environ[AUTH].partition(":")[2],
        port,
        page_secret=page_secret,
        local_storage={UI_PASSWORD: authorization(page_secret).removeprefix("Basic ")},
        in_band_websockets=True,
    )
    uvicorn.run(
        guarded,
        host=LOOPBACK,
        port=port,
        timeout_keep_alive=server.api.keepalive_timeout,
        ws_ping_interval=server.api.websocket_ping_interval,
        ws_ping_timeout=server.api.websocket_ping_timeout,
        log_level=server.logging_level.lower(),
    )


if __name__ == "__main__":
    main(int(sys.argv[1]))
