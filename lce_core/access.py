"""Who may talk to a server of ours: a secret of the home, and a guard in front of the server.

Every server binds loopback, which every user of the machine and every page in a browser can reach.
So a request passes only with the server's secret, from the server's own origin, under one of the
server's own names. Each server's secret is derived from the one that lies in the home: browsers
send a cookie of 127.0.0.1 to every port, so a cookie that leaks from one server opens no other. A
cookie holds a digest of the secret, so it opens nothing behind the guard that asks for the secret.

Whoever sends a secret asks for a proof first, because another user may listen on the port of a
server that has ended: the server shows that it knows the secret without saying it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import os
import secrets
from collections.abc import Awaitable, Callable, Collection, Mapping, MutableMapping
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from typing import Any
from urllib.parse import quote

from filelock import FileLock

from lce_core.errors import ServiceError

USER = "lce"
"""User name of HTTP Basic authentication, which wants one."""
LOGIN = "/lce-login"
"""Path of the page that logs a browser in; the secret stands behind `#` and reaches no log."""
PROOF = "/lce-proof"
"""Path that answers a nonce (the query) with `proof`, to anybody."""
MAX_LOGIN_BYTES = 1024
"""No secret is longer; a client that sends more gets its answer without being read to the end."""
MIN_SECRET_BYTES = 32
SECRET_VARIABLE = "LCE_SERVER_SECRET"
"""Environment variable that hands a server its secret: others can read its command line."""

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

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
    // A link in another program brings no cookie along, but a page of this server does.
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
    """Return the secret of one server of `home`, the same at every call.

    The home's secret is made at the first call, in a file that only its owner can read.

    Raises:
      ServiceError: the file belongs to another user, or others can read it.
    """
    digest = hmac.new(_home_secret(home), server.encode(), hashlib.sha256).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def new_secret() -> str:
    """Return a random secret for a server that ends with the process that starts it."""
    return secrets.token_urlsafe(32)


def auth_string(secret: str) -> str:
    """Return `user:password`, the form of HTTP Basic authentication and of Prefect's settings."""
    return f"{USER}:{secret}"


def authorization(secret: str) -> str:
    """Return the value of the header `Authorization` that carries `secret`."""
    return f"Basic {base64.b64encode(auth_string(secret).encode()).decode()}"


def login_link(url: str, secret: str, page: str = "") -> str:
    """Return the address that logs a browser in at the server of `url` (scheme, host, port).

    Args:
      url: address of the server, such as http://127.0.0.1:5000.
      secret: the server's secret.
      page: path, query and fragment of the page to open then; the server's first page if empty.
    """
    query = f"?page={quote(page, safe='')}" if page else ""
    return f"{url.rstrip('/')}{LOGIN}{query}#{secret}"


def proof(secret: str, port: int, nonce: str) -> str:
    """Return what only the server on `port` that knows `secret` can answer to `nonce`."""
    message = f"proof {port} {nonce}"
    return hmac.new(secret.encode(), message.encode(), hashlib.sha256).hexdigest()


class Guard:
    """ASGI middleware that answers 403 or 401 unless host, origin and secret are right."""

    def __init__(
        self,
        app: App,
        secret: str,
        port: int,
        *,
        local_storage: Mapping[str, str] | None = None,
        in_band_websockets: bool = False,
        open_paths: Collection[str] = (),
    ) -> None:
        """Guard `app`.

        Args:
          app: the server behind the guard.
          secret: what a request has to carry, as HTTP Basic password or Bearer token; the login
            page exchanges it for a cookie.
          port: where the server listens, which is part of its name in a browser.
          local_storage: what the login page writes into the browser's local storage, for a page
            that sends its own header `Authorization`.
          in_band_websockets: `app` asks for a secret inside a WebSocket, so a handshake needs none.
          open_paths: paths that tell nothing, such as /health, and need no secret.
        """
        self.app = app
        self.secret = secret
        self.port = port
        self.hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}
        self.cookie = f"lce-{port}"
        self.cookie_value = hmac.new(secret.encode(), b"cookie", hashlib.sha256).hexdigest()
        self.local_storage = dict(local_storage or {})
        self.in_band_websockets = in_band_websockets
        self.open_paths = frozenset(open_paths)
        sockets = " ".join(f"ws://{host}" for host in sorted(self.hosts))
        # Pages load and send nothing elsewhere: no telemetry, no fonts, no text of a study.
        self.policy = (
            "default-src 'self' 'unsafe-inline' 'unsafe-eval' data: blob:; "
            f"connect-src 'self' data: blob: {sockets}; "
            "object-src 'none'; base-uri 'self'; form-action 'self'; frame-ancestors 'self'"
        ).encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer it."""
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        headers = _headers(scope)
        refusal = self._refusal(headers)
        is_http = scope["type"] == "http"
        if refusal:
            await _answer(scope, send, 403, refusal)
        elif is_http and scope["path"] == LOGIN:
            await self._login(scope, receive, send)
        elif is_http and scope["path"] == PROOF:
            nonce = scope["query_string"].decode("latin-1")
            await _answer(scope, send, 200, proof(self.secret, self.port, nonce))
        elif is_http and (scope["path"] in self.open_paths or self._may_pass(headers)):
            await self.app(scope, receive, self._confining(send))
        elif not is_http and (self.in_band_websockets or self._may_pass(headers)):
            await self.app(scope, receive, send)
        elif is_http and scope["method"] == "GET" and "text/html" in headers.get("accept", ""):
            await _answer(scope, send, 401, _PAGE, "text/html; charset=utf-8")
        else:
            await _answer(
                scope,
                send,
                401,
                "This server answers only with its secret. In a browser, open the link that"
                " `lce up` or `lce dashboard` printed. docs/operations.md says how programs log"
                " in.",
            )

    def _refusal(self, headers: Mapping[str, str]) -> str:
        """Say why no secret helps this request; empty if one would."""
        host = headers.get("host", "")
        # A page whose name points to 127.0.0.1 (DNS rebinding) sends that name.
        if host not in self.hosts:
            return f"Host is {host[:100]!r}; expected one of {', '.join(sorted(self.hosts))}."
        origin = headers.get("origin")
        if origin is not None and origin != f"http://{host}":
            return f"Origin is {origin[:100]!r}; expected 'http://{host}'."
        # An origin of loopback on another port shares our cookies, and a GET may name no origin.
        foreign = headers.get("sec-fetch-site") in ("cross-site", "same-site")
        opens_page = headers.get("sec-fetch-dest") == "document"
        if foreign and not opens_page:
            return "A page of another server asks; expected a page of this one."
        return ""

    def _confining(self, send: Send) -> Send:
        """Add to pages the policy that they talk to this server only."""

        async def confined(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = list(message.get("headers", []))
                kinds = [value for name, value in headers if name.lower() == b"content-type"]
                if any(kind.startswith(b"text/html") for kind in kinds):
                    headers.append((b"content-security-policy", self.policy))
                message = {**message, "headers": headers}
            await send(message)

        return confined

    def _may_pass(self, headers: Mapping[str, str]) -> bool:
        given = [(secret, self.secret) for secret in _secrets(headers)]
        given += [(value, self.cookie_value) for value in _cookies(headers, self.cookie)]
        return any(
            hmac.compare_digest(one.encode("utf-8", "replace"), expected.encode())
            for one, expected in given
        )

    async def _login(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "HEAD":
            await _answer(scope, send, 204 if self._may_pass(_headers(scope)) else 401, "")
            return
        if scope["method"] != "POST":
            await _answer(scope, send, 200, _PAGE, "text/html; charset=utf-8")
            return
        body = await _body(receive)
        if not hmac.compare_digest(body, self.secret.encode()):
            await _answer(
                scope,
                send,
                401,
                "This link is of another LCE_HOME, or of a server that has ended. Open the link"
                " that the last `lce up` or `lce dashboard` printed.",
            )
            return
        cookie = f"{self.cookie}={self.cookie_value}; Path=/; HttpOnly; SameSite=Strict"
        content = json.dumps(self.local_storage)
        await _answer(scope, send, 200, content, "application/json", cookie)


def _headers(scope: Scope) -> dict[str, str]:
    return {
        name.lower().decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]
    }


def _secrets(headers: Mapping[str, str]) -> list[str]:
    """List the secrets of a request's header `Authorization`."""
    scheme, _, value = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return [value]
    if scheme.lower() == "basic":
        try:
            decoded = base64.b64decode(value, validate=True).decode("utf-8", "replace")
        except (binascii.Error, ValueError):
            return []
        return [decoded.partition(":")[2]]
    return []


def _cookies(headers: Mapping[str, str], name: str) -> list[str]:
    """List the values of a request's cookie `name`: one or none."""
    try:
        cookies = SimpleCookie(headers.get("cookie", ""))
    except CookieError:
        return []
    return [cookies[name].value] if name in cookies else []


async def _body(receive: Receive) -> bytes:
    """Read a request's body, as far as a secret could reach."""
    body = b""
    while len(body) <= MAX_LOGIN_BYTES:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    return body


async def _answer(
    scope: Scope,
    send: Send,
    status: int,
    text: str,
    content_type: str = "text/plain; charset=utf-8",
    cookie: str = "",
) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008, "reason": text[:100]})
        return
    headers = [
        (b"content-type", content_type.encode()),
        (b"cache-control", b"no-store"),
        (b"x-content-type-options", b"nosniff"),
        (b"x-frame-options", b"DENY"),
        (b"referrer-policy", b"no-referrer"),
    ]
    if cookie:
        headers.append((b"set-cookie", cookie.encode()))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": text.encode()})


def _home_secret(home: Path) -> bytes:
    file = home / "services" / "secret"
    file.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(file.with_name(".secret.lock")):
        # A crash of the machine may leave an empty file: anybody could guess that secret.
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
