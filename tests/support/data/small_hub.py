"""A hub with one data set on loopback: what the hub's client asks while it streams, and no more."""

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

COMMIT = "0" * 39 + "1"


@contextmanager
def small_hub(folder: Path, asked: list[str]) -> Iterator[str]:
    """Serves `folder` as the data set own/set at `COMMIT`; yields the endpoint.

    Args:
      folder: its files.
      asked: gets the path of every file that is read.
    """

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            if "/resolve/" in self.path:
                name = unquote(self.path.split("/resolve/")[1].split("/", 1)[1])
                if not (folder / name).is_file():
                    self._send(404, b"", {"X-Error-Code": "EntryNotFound"})
                    return
                asked.append(name)
                self._file((folder / name).read_bytes())
            elif self.path.startswith("/api/datasets/own/set/tree/"):
                place, _, query = self.path.partition("?")
                below = folder / unquote(place.split("/tree/")[1].partition("/")[2])
                if below.is_dir():
                    self._json(_entries(folder, below, "recursive=true" in query))
                else:
                    self._send(404, b"", {"X-Error-Code": "EntryNotFound"})
            elif self.path.startswith("/api/datasets/own/set/revision/"):
                names = [{"rfilename": entry["path"]} for entry in _entries(folder, folder, True)]
                self._json({"id": "own/set", "sha": COMMIT, "siblings": names})
            else:
                self._send(404, b"{}")

        def _file(self, data: bytes) -> None:
            found = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "bytes=0-")
            assert found
            first, last = int(found[1]), int(found[2] or len(data) - 1)
            tag = hashlib.sha256(data).hexdigest()
            place = {"ETag": f'"{tag}"', "X-Repo-Commit": COMMIT}
            if "Range" not in self.headers:
                self._send(200, data, place)
                return
            place["Content-Range"] = f"bytes {first}-{last}/{len(data)}"
            self._send(206, data[first : last + 1], place)

        def _json(self, value: Any) -> None:
            self._send(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

        def _send(self, status: int, data: bytes, more: dict[str, str] | None = None) -> None:
            self.send_response(status)
            for name, value in (more or {}).items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _entries(folder: Path, below: Path, recursive: bool) -> list[dict[str, Any]]:
    return [
        {
            "type": "file" if path.is_file() else "directory",
            "path": path.relative_to(folder).as_posix(),
            "size": path.stat().st_size if path.is_file() else 0,
            "oid": "1" * 40,
        }
        for path in sorted(below.rglob("*") if recursive else below.iterdir())
        if path.is_file() or not recursive
    ]
