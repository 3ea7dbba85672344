"""Control access to the servers that lce starts: one secret per LCE_HOME, a guard per server.

Servers bind to loopback, which every user of the machine and every web page in a browser can reach.
Browsers send a cookie of 127.0.0.1 to every port; because secrets differ, a cookie leaked from one
server does not open another. A cookie contains a digest of the secret, so it does not authenticate
to an application behind the guard that itself requires the secret. Clients request a proof before
they send a secret, because another user may listen on the port of a server that has ended.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import secrets
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from filelock import FileLock

from lce_core.errors import ServiceError

if TYPE_CHECKING:
    # At run time only where a server uses it: commands that read a secret do not wait for it.
    from starlette.requests import HTTPConnection
    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

USER = "lce"
"""User name for HTTP Basic authentication. The protocol requires one; the guard ignores it."""
LOGIN = "/lce-login"
"""URL path of the login page. Its link carries the secret after `#`, which browsers do not send, so
no log contains it."""
PROOF = "/lce-proof"
"""URL path at which a client checks that the server knows the secret (`proof`)."""
MAX_LOGIN_BYTES = 1024
"""Maximum size of a login request's body. The secret has 43 bytes; clients are not logged in
yet."""
MIN_SECRET_BYTES = 32
SECRET_VARIABLE = "LCE_SERVER_SECRET"
"""Environment variable that passes a server its secret. Other users could read a command line."""

_SECRET_NEEDED = (
    "This server answers only with its secret. In a browser, open the link that `lce up` or `lce"
    " dashboard` printed. docs/operations.md says how programs log in."
)
_HEADERS = {
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
}
_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>lce: log in</title>
<link rel="icon" href="data:,">
<style>body{font:16px system-ui;max-width:34rem;margin:4rem auto;padding:0 1rem;
color-scheme:light dark}</style>
<h1>Log in</h1><p id="text">This server answers only to the user who started it. Open the link that
<code>lce up</code> (or <code>lce dashboard</code>) printed.</p>
<script>
const text = document.getElementById("text");
const asked = new URL(new URLSearchParams(location.search).get("page") || "/", location.origin);
async function login() {
  if (location.pathname !== "__LOGIN__") {
    // The browser sends no SameSite=Strict cookie for a link that another program opened. It does
    // for a page of this server, so ask from the login page.
    const here = location.pathname + location.search + location.hash;
    location.replace("__LOGIN__?page=" + encodeURIComponent(here));
    return;
  }
  const secret = location.hash.slice(1);
  if (secret) {
    history.replaceState(null, "", location.pathname + location.search);
    const answer = await fetch("__LOGIN__", {method: "POST", body: secret});
    if (!answer.ok) { text.textContent = await answer.text(); return; }
    for (const [key, value] of Object.entries(await answer.json()))
      localStorage.setItem(key, value);
  } else if ((await fetch("__LOGIN__", {method: "HEAD"})).status !== 204) return;
  location.replace(asked.origin === location.origin ? asked : "/");
}
addEventListener("hashchange", login);
login();
</script></html>
""".replace("__LOGIN__", LOGIN)


def server_secret(home: Path, server: str) -> str:
    """Return the secret of one server: the HMAC of its name under the secret of LCE_HOME."""
    digest = hmac.new(_home_secret(home), server.encode(), hashlib.sha256).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def new_secret() -> str:
    """Return a random secret, for a server that stops together with the process that started it."""
    return secrets.token_urlsafe(32)


def auth_string(secret: str) -> str:
    """Return `user:password`, the format of HTTP Basic authentication and Prefect's settings."""
    return f"{USER}:{secret}"


def authorization(secret: str) -> str:
    return f"Basic {base64.b64encode(auth_string(secret).encode()).decode()}"


def login_link(url: str, secret: str, page: str = "") -> str:
    query = f"?page={quote(page, safe='')}" if page else ""
    return f"{url.rstrip('/')}{LOGIN}{query}#{secret}"


def proof(secret: str, port: int, nonce: str) -> str:
    """Return the HMAC of port and nonce under `secret`, as hex digits."""
    message = f"proof {port} {nonce}"
    return hmac.new(secret.encode(), message.encode(), hashlib.sha256).hexdigest()


class Guard:
    """ASGI middleware that responds 403 for a wrong host or origin and 401 for a wrong secret."""

    def __init__(
        self,
        app: ASGIApp,
        secret: str,
        port: int,
        *,
        page_secret: str = "",
        local_storage: Mapping[str, str] | None = None,
        in_band_websockets: bool = False,
        open_paths: Collection[str] = (),
    ) -> None:
        """Guard `app`, an ASGI application.

        Args:
          secret: Basic password or Bearer token of a request; the login page exchanges it for a
            cookie.
          port: Port on which the server listens; the host and origin of a request must name it.
          page_secret: A second secret, new for each start of the server, for pages that keep theirs
            in the browser: another user may listen on this port later and read it there. `app` gets
            `secret` instead.
          local_storage: Entries that the login page writes into the browser's local storage, for
            applications whose pages set their own `Authorization` header.
          in_band_websockets: True if `app` authenticates inside a WebSocket, so that the handshake
            needs no secret.
          open_paths: Paths that need no secret because they reveal nothing, such as /health.
        """
        self.app = app
        self.secret, self.page_secret = secret, page_secret
        self.port = port
        self.hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}
        self.cookie = f"lce-{port}"
        self.cookie_value = hmac.new(secret.encode(), b"cookie", hashlib.sha256).hexdigest()
        self.local_storage = dict(local_storage or {})
        self.in_band_websockets = in_band_websockets
        self.open_paths = frozenset(open_paths)
        sockets = " ".join(f"ws://{host}" for host in sorted(self.hosts))
        # Pages must neither load from nor send to other servers: no telemetry, no web fonts.
        self.policy = (
            "default-src 'self' 'unsafe-inline' 'unsafe-eval' data: blob:; "
            f"connect-src 'self' data: blob: {sockets}; "
            "object-src 'none'; base-uri 'self'; form-action 'self'; frame-ancestors 'self'"
        ).encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        from starlette.requests import HTTPConnection

        connection = HTTPConnection(scope)
        refusal = self._refusal(connection.headers)
        if scope["type"] == "websocket":
            if not refusal and (self.in_band_websockets or self._may_pass(connection)):
                await self.app(scope, receive, send)
            else:
                reason = (refusal or _SECRET_NEEDED)[:100]
                await send({"type": "websocket.close", "code": 1008, "reason": reason})
            return
        if refusal:
            answer = _answer(403, refusal)
        elif scope["path"] == LOGIN:
            answer = await self._login(connection, receive)
        elif scope["path"] == PROOF:
            nonce = scope["query_string"].decode("latin-1")
            answer = _answer(200, proof(self.secret, self.port, nonce))
        elif scope["path"] in self.open_paths or self._may_pass(connection):
            await self.app(self._with_secret(scope), receive, self._confining(send))
            return
        elif scope["method"] == "GET" and "text/html" in connection.headers.get("accept", ""):
            answer = _answer(401, _PAGE, "text/html")
        else:
            answer = _answer(401, _SECRET_NEEDED)
        await answer(scope, receive, send)

    def _refusal(self, headers: Mapping[str, str]) -> str:
        """Return the reason why a request is refused whatever its secret; "" if there is none."""
        host = headers.get("host", "")
        # DNS rebinding: a foreign domain that resolves to 127.0.0.1 sends its own name as Host.
        if host not in self.hosts:
            return f"Host is {host[:100]!r}; expected one of {', '.join(sorted(self.hosts))}."
        origin = headers.get("origin")
        if origin is not None and origin != f"http://{host}":
            return f"Origin is {origin[:100]!r}; expected 'http://{host}'."
        # Pages of other loopback ports share our cookies, and a GET may have no Origin header.
        foreign = headers.get("sec-fetch-site") in ("cross-site", "same-site")
        opens_page = headers.get("sec-fetch-dest") == "document"
        if foreign and not opens_page:
            return "The request comes from a page of another server; expected a page of this one."
        return ""

    def _confining(self, send: Send) -> Send:
        async def confined(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = list(message.get("headers", []))
                kinds = [value for name, value in headers if name.lower() == b"content-type"]
                if any(kind.startswith(b"text/html") for kind in kinds):
                    headers.append((b"content-security-policy", self.policy))
                message = {**message, "headers": headers}
            await send(message)

        return confined

    def _with_secret(self, scope: Scope) -> Scope:
        if not self.page_secret:
            return scope
        theirs, ours = (authorization(one).encode() for one in (self.page_secret, self.secret))
        headers = [(name, ours if text == theirs else text) for name, text in scope["headers"]]
        return {**scope, "headers": headers}

    def _may_pass(self, connection: HTTPConnection) -> bool:
        accepted = [one for one in (self.secret, self.page_secret) if one]
        given = [(secret, one) for secret in _secrets(connection.headers) for one in accepted]
        given.append((connection.cookies.get(self.cookie, ""), self.cookie_value))
        return any(
            hmac.compare_digest(one.encode("utf-8", "replace"), expected.encode())
            for one, expected in given
        )

    async def _login(self, connection: HTTPConnection, receive: Receive) -> Response:
        method = connection.scope["method"]
        if method == "HEAD":
            return _answer(204 if self._may_pass(connection) else 401, "")
        if method != "POST":
            return _answer(200, _PAGE, "text/html")
        if not hmac.compare_digest(await _body(receive), self.secret.encode()):
            return _answer(
                401,
                "This link belongs to another LCE_HOME, or to a server that has stopped. Open the"
                " link that the last `lce up` or `lce dashboard` printed.",
            )
        answer = _answer(200, json.dumps(self.local_storage), "application/json")
        cookie = f"{self.cookie}={self.cookie_value}; Path=/; HttpOnly; SameSite=Strict"
        answer.headers["set-cookie"] = cookie
        return answer


def _secrets(headers: Mapping[str, str]) -> list[str]:
    scheme, _, value = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return [value]
    if scheme.lower() == "basic":
        try:
            decoded = base64.b64decode(value, validate=True).decode("utf-8", "replace")
        except ValueError:
            return []
        return [decoded.partition(":")[2]]
    return []


async def _body(receive: Receive) -> bytes:
    body = b""
    while len(body) <= MAX_LOGIN_BYTES:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    return body


def _answer(status: int, text: str, media_type: str = "text/plain") -> Response:
    from starlette.responses import Response

    return Response(text, status, _HEADERS, media_type)


def _home_secret(home: Path) -> bytes:
    file = home / "services" / "secret"
    file.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(file.with_name(".secret.lock")):
        # A machine crash can leave an empty file, which would be a guessable secret.
        if not file.exists() or file.stat().st_size < MIN_SECRET_BYTES:
            new = file.with_name(".secret.new")
            new.unlink(missing_ok=True)
            descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w") as stream:
                stream.write(new_secret())
            new.replace(file)
    found = file.stat()
    if found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise ServiceError(
            file,
            f"a file of user {found.st_uid} with mode {found.st_mode & 0o777:o}",
            f"a secret of user {os.geteuid()} that nobody else can read (mode 600)",
            "use an LCE_HOME of your own; or run `lce down`, delete the file, and start again",
        )
    return file.read_bytes()
