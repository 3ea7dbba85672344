"""The guard in front of every server: who passes, who is refused, and where the secret lies."""

import asyncio
import json
import os
import stat
from typing import Any

import pytest

from lce_core.access import (
    LOGIN,
    PROOF,
    Guard,
    authorization,
    login_link,
    new_secret,
    proof,
    server_secret,
)
from lce_core.errors import ServiceError

SECRET = new_secret()
PORT = 4321
HOST = {"host": f"127.0.0.1:{PORT}"}
COOKIE = Guard(lambda *_: None, SECRET, PORT).cookie_value
RIGHT = {**HOST, "authorization": authorization(SECRET)}


async def served(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.accept"})
        return
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"inside"})


def ask(
    headers: dict[str, str],
    *,
    kind: str = "http",
    method: str = "GET",
    path: str = "/api/flows",
    query: str = "",
    body: bytes = b"",
    server: Any = served,
    **options: Any,
) -> list[dict[str, Any]]:
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": kind,
        "method": method,
        "path": path,
        "query_string": query.encode(),
        "headers": [(key.encode(), value.encode("latin-1")) for key, value in headers.items()],
    }
    asyncio.run(Guard(server, SECRET, PORT, **options)(scope, receive, send))
    return sent


def status(*arguments: Any, **options: Any) -> int:
    return int(ask(*arguments, **options)[0]["status"])


def test_the_secret_lets_a_request_in():
    assert status(RIGHT) == 200
    assert status({**HOST, "authorization": f"Bearer {SECRET}"}) == 200
    assert status({**RIGHT, "origin": f"http://127.0.0.1:{PORT}"}, method="POST") == 200


@pytest.mark.parametrize(
    "credentials",
    [
        {},
        {"authorization": authorization(new_secret())},
        {"authorization": "Basic not-base64"},
        {"authorization": authorization("")},
        {"authorization": "Basic \xe9"},
        {"cookie": f"lce-{PORT}={SECRET}"},
        {"cookie": f"lce-{PORT + 1}={COOKIE}"},
        {"cookie": "=;;=\x00"},
    ],
)
def test_without_the_secret_a_request_stays_out(credentials):
    assert status({**HOST, **credentials}) == 401


@pytest.mark.parametrize(
    "wrong",
    [
        {"host": f"evil.example:{PORT}"},
        {"host": f"127.0.0.1:{PORT}.evil.example"},
        {"origin": f"http://localhost:{PORT + 1}"},
        {"origin": "null"},
    ],
)
def test_a_foreign_host_or_origin_is_refused_even_with_the_secret(wrong):
    assert status({**RIGHT, **wrong}) == 403


def test_logging_in_sets_a_cookie_and_what_the_page_keeps():
    start, content = ask(
        HOST, method="POST", path=LOGIN, body=SECRET.encode(), local_storage={"key": "value"}
    )
    cookie = dict(start["headers"])[b"set-cookie"].decode()
    assert json.loads(content["body"]) == {"key": "value"}
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert status({**HOST, "cookie": f"other=1; {cookie.partition(';')[0]}"}) == 200
    # Browsers send it to every port of this address, so it must not be the secret itself.
    assert SECRET not in cookie
    assert status(HOST, method="POST", path=LOGIN, body=b"wrong") == 401


def test_what_a_page_keeps_opens_only_the_server_that_gave_it():
    given = {**HOST, "authorization": authorization(page_secret := new_secret())}
    reached: list[Any] = []

    async def keep(scope: Any, _: Any, send: Any) -> None:
        reached.append(dict(scope["headers"])[b"authorization"].decode())
        await served(scope, _, send)

    assert status(given, server=keep, page_secret=page_secret) == 200
    assert reached == [RIGHT["authorization"]]
    # The same home's server after a restart, and a server without such a page.
    assert status(given, page_secret=new_secret()) == status(given) == 401
    assert status({**HOST, "authorization": authorization("")}) == 401
    login = ask(HOST, method="POST", path=LOGIN, body=page_secret.encode(), page_secret=page_secret)
    assert login[0]["status"] == 401


def test_a_server_proves_to_anybody_that_it_knows_the_secret_and_keeps_it():
    _, content = ask(HOST, path=PROOF, query="nonce")
    assert content["body"].decode() == proof(SECRET, PORT, "nonce")
    others = [proof(new_secret(), PORT, "nonce"), proof(SECRET, PORT + 1, "nonce")]
    assert content["body"].decode() not in [*others, proof(SECRET, PORT, "other")]
    assert SECRET.encode() not in content["body"]


def test_websockets_need_the_secret_unless_they_ask_for_it_themselves():
    assert ask(HOST, kind="websocket")[0]["type"] == "websocket.close"
    assert ask(RIGHT, kind="websocket")[0]["type"] == "websocket.accept"
    assert ask(HOST, kind="websocket", in_band_websockets=True)[0]["type"] == "websocket.accept"
    foreign = {**HOST, "origin": "http://evil.example"}
    assert ask(foreign, kind="websocket", in_band_websockets=True)[0]["type"] == "websocket.close"


def test_each_server_of_a_home_has_a_secret_of_its_own_that_stays(tmp_path):
    first = server_secret(tmp_path, "mlflow")
    assert first == server_secret(tmp_path, "mlflow")
    assert first != server_secret(tmp_path, "prefect")
    assert first != server_secret(tmp_path / "other", "mlflow")
    file = tmp_path / "services" / "secret"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_an_empty_secret_is_replaced_and_one_that_others_can_read_is_refused(tmp_path):
    server_secret(tmp_path, "mlflow")
    file = tmp_path / "services" / "secret"
    os.truncate(file, 0)
    server_secret(tmp_path, "mlflow")
    assert file.stat().st_size >= 32
    file.chmod(0o644)
    with pytest.raises(ServiceError, match="nobody else can read"):
        server_secret(tmp_path, "mlflow")


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_another_page_may_open_a_page_of_the_server_but_not_embed_or_fetch_it(site):
    asks = {**RIGHT, "sec-fetch-site": site}
    assert status({**asks, "sec-fetch-dest": "document"}) == 200
    assert status({**asks, "sec-fetch-dest": "iframe"}) == 403
    assert status({**asks, "sec-fetch-dest": "empty"}) == 403


def test_an_open_path_needs_no_secret_but_one_of_the_servers_names():
    assert status(HOST, path="/health", open_paths=("/health",)) == 200
    assert status(HOST, path="/health/more", open_paths=("/health",)) == 401
    assert status({"host": "evil.example"}, path="/health", open_paths=("/health",)) == 403


def test_a_page_is_told_to_talk_to_its_own_server_only():
    async def page(scope: Any, receive: Any, send: Any) -> None:
        kind = [(b"content-type", b"text/html; charset=utf-8")]
        await send({"type": "http.response.start", "status": 200, "headers": kind})
        await send({"type": "http.response.body", "body": b"<p>inside"})

    start = ask(RIGHT, server=page)[0]
    policy = dict(start["headers"])[b"content-security-policy"].decode()
    assert f"connect-src 'self' data: blob: ws://127.0.0.1:{PORT} ws://localhost:{PORT};" in policy


def test_the_login_page_tells_whether_a_browser_has_logged_in():
    assert status(RIGHT, method="HEAD", path=LOGIN) == 204
    assert status(HOST, method="HEAD", path=LOGIN) == 401
    start, content = ask({**HOST, "accept": "text/html,*/*"}, path="/runs")
    assert start["status"] == 401
    assert b"lce up" in content["body"]


def test_a_login_link_leads_to_the_page_it_names_and_keeps_the_secret_in_its_fragment():
    link = login_link("http://127.0.0.1:1/", "s", "/#/runs?a=b&c=d")
    assert link == f"http://127.0.0.1:1{LOGIN}?page=%2F%23%2Fruns%3Fa%3Db%26c%3Dd#s"
