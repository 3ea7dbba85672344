"""What may have become of a file or folder of a home, and which places of a home there are."""

import json
import os
import random
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

Change = Callable[[Path], None]

ADDED = (
    "failures/{cell}.json",
    "leases/{cell}.json",
    "leases/verification.json",
    "progress/{cell}",
    "progress/{cell}/order.json",
    "prompts/0123456789abcdef.safetensors",
    "services/deployed.json",
    "services/mlflow.json",
    "services/server.json",
    "studies/tiny/earlier.json",
    "studies/tiny/study.lock",
    "verifications/{cell}-20260101.json",
)
"""Files and folders that a home may hold and a finished one does not; `{cell}` is an id."""


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _replaced(make: Change) -> Change:
    def change(path: Path) -> None:
        _remove(path)  # never written into: artifacts are links to those of another home
        path.parent.mkdir(parents=True, exist_ok=True)
        make(path)

    return change


def _truncate(path: Path) -> None:
    content = path.read_bytes() if path.is_file() else b"{}"
    _remove(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content[: len(content) // 2])


def _folder(path: Path) -> None:
    path.mkdir()
    (path / "something").write_text("else", encoding="utf-8")


def _values_of_other_types(path: Path) -> None:
    """JSON that has all its keys, with values of types that nobody expects."""
    try:
        content = json.loads(path.read_bytes()) if path.is_file() else {}
    except ValueError:
        content = {}
    odd: tuple[object, ...] = (None, [1], "text", {"a": 1}, -1.5, True)
    keys = content if isinstance(content, dict) and content else ("attempts", "cells", "pid", "url")
    _remove(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    draw = random.Random(path.name)
    path.write_text(json.dumps({key: draw.choice(odd) for key in keys}), encoding="utf-8")


CHANGES: Mapping[str, Change] = {
    "deleted": _remove,
    "truncated": _truncate,
    "a folder": _replaced(_folder),
    "a FIFO": _replaced(os.mkfifo),
    "a dangling link": _replaced(lambda path: path.symlink_to("nowhere")),
    "a loop of links": _replaced(lambda path: path.symlink_to(path.name)),
    "empty": _replaced(Path.touch),
    "garbage": _replaced(lambda path: path.write_bytes(b"\xff\x00\x80garbage\n" * 40) and None),
    "a JSON list": _replaced(lambda path: path.write_text("[1]") and None),
    "a JSON mapping": _replaced(lambda path: path.write_text("{}") and None),
    "a JSON text": _replaced(lambda path: path.write_text('"x"') and None),
    "deep JSON": _replaced(lambda path: path.write_text("[" * 100_000) and None),
    "odd values": _values_of_other_types,
}


def places(home: Path, cell: str) -> list[str]:
    """Paths below a home that may be changed: all that is there, and what might be."""
    there = (path.relative_to(home) for path in home.rglob("*"))
    kept = {path.as_posix() for path in there if path.parts[0] not in ("mlflow", "prefect")}
    rest = {"mlflow", "mlflow/mlflow.db", "mlflow/pages.json", "mlflow/projected.json"}
    rest |= {"mlflow/.lock", "prefect", "services", "verifications", "reports", "models"}
    return sorted(kept | rest | {name.format(cell=cell) for name in ADDED})
