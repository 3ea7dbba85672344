"""Resume points on disk: one folder a point, one safetensors file a shard.

    point-<step>-<token>/point.json                     step, identity and number of shards
    point-<step>-<token>/shard-<i>-of-<n>.safetensors

Shard i holds a run of rows of every tensor; all shards of a tensor in order are the whole, so a
point taken by n processes can be read by any other number, whole or in rows. Tensors without rows
lie in shard 0.

A point is written aside, under a name with a random token, fsynced and renamed: it exists whole or
not at all, and the files of two writers never meet. The one before is removed after that.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from lce_core.errors import StoreError
from lce_core.store.odd_files import open_file, read_mapping
from lce_core.store.records import sync
from lce_core.training.checkpoints import _streamed

_ASIDE = "writing-"
_NAME = re.compile(r"point-(\d{9})-([0-9a-f]{12})")


@dataclass(frozen=True)
class Point:
    """A whole resume point: `step` updates are done; `token` tells points of one step apart."""

    folder: Path
    step: int
    token: int

    @property
    def path(self) -> Path:
        """Folder of the finished point."""
        return self.folder / f"point-{self.step:09d}-{self.token:012x}"

    @property
    def aside(self) -> Path:
        """Folder it is written in."""
        return self.folder / f"{_ASIDE}{self.path.name}"

    def shards(self) -> list[Path]:
        """Its files in order, as many as `point.json` says."""
        count = json.loads((self.path / "point.json").read_text(encoding="utf-8"))["shards"]
        return [self.path / _file_name(index, count) for index in range(count)]


class WholeTensors:
    """Reads tensors of a point, or rows of them, as if there were one shard."""

    def __init__(self, shards: list[Any]) -> None:
        self._shards = shards
        self.names: tuple[str, ...] = tuple(shards[0].keys())

    def scalar(self, name: str) -> Tensor:
        """A tensor without rows."""
        tensor: Tensor = self._shards[0].get_tensor(name)
        return tensor

    def rows(self, name: str, wanted: slice) -> Tensor:
        """Rows `wanted` of the whole tensor, on the CPU."""
        parts, start = [], 0
        for shard in self._shards:
            held = shard.get_slice(name)
            count = held.get_shape()[0]
            first, last = max(wanted.start - start, 0), min(wanted.stop - start, count)
            if first < last:
                parts.append(held[first:last])
            start += count
        if not parts:
            return torch.empty(0)
        return parts[0] if len(parts) == 1 else torch.cat(parts)


def write_shard(point: Point, index: int, count: int, tensors: Mapping[str, Tensor]) -> None:
    """Writes shard `index` of `count`, aside; every writer of the point calls this.

    Raises:
      OSError: it cannot be written.
    """
    point.aside.mkdir(parents=True, exist_ok=True)
    path = point.aside / _file_name(index, count)
    try:
        _streamed.write(path, tensors)
        sync(path)
    except OSError as error:
        text = f"the resume point cannot be written: {error.strerror}"
        raise OSError(error.errno, text, str(path)) from error


def publish(point: Point, identity: str, count: int) -> None:
    """Makes a point of `count` written shards the folder's last one; one process calls this.

    Later points stay: only who took the run over, after this process was silent, has any.

    Raises:
      OSError: it cannot be written; the point before it stays.
    """
    facts = point.aside / "point.json"
    content = {"step": point.step, "identity": identity, "shards": count}
    facts.write_text(json.dumps(content), encoding="utf-8")
    sync(facts)
    sync(point.aside)
    point.aside.rename(point.path)
    sync(point.folder)
    for other in _points(point.folder):
        if other != point and other.step <= point.step:
            shutil.rmtree(other.path, ignore_errors=True)


def find_point(folder: Path, identity: str) -> Point | None:
    """The folder's latest whole point of the run `identity`; None if there is none to use.

    A damaged point counts as none: the run then starts over, which costs time but no correctness.

    Raises:
      StoreError: a point belongs to another run.
    """
    for point in _points(folder):
        facts = _facts(point.path / "point.json")
        if facts is None:
            continue
        if facts["identity"] != identity:
            raise StoreError(
                point.path,
                f"a resume point of run {facts['identity']}",
                f"one of this run, {identity}",
                "remove the folder, or give this run its own",
            )
        try:
            with open_point(point):
                return point
        except (SafetensorError, OSError):
            continue
    return None


@contextlib.contextmanager
def open_point(point: Point) -> Iterator[WholeTensors]:
    """The tensors of a point, for as long as the block lasts.

    Raises:
      SafetensorError, OSError: a shard is damaged or missing.
    """
    for path in point.shards():
        open_file(path).close()  # safetensors would wait for the writer of a FIFO
    with contextlib.ExitStack() as stack:
        yield WholeTensors(
            [stack.enter_context(safe_open(path, framework="pt")) for path in point.shards()]
        )


def sweep(folder: Path) -> None:
    """Removes what writers left behind that were killed; one process calls this, at its start."""
    for path in folder.glob(f"{_ASIDE}*"):
        shutil.rmtree(path, ignore_errors=True)


def _points(folder: Path) -> list[Point]:
    """Points of a folder, latest first."""
    found = [_NAME.fullmatch(path.name) for path in folder.glob("point-*")]
    points = [Point(folder, int(name[1]), int(name[2], 16)) for name in found if name]
    return sorted(points, key=lambda point: point.step, reverse=True)


def _facts(path: Path) -> dict[str, Any] | None:
    try:
        facts = read_mapping(path)
    except (OSError, ValueError):
        return None
    is_whole = isinstance(facts.get("identity"), str) and isinstance(facts.get("shards"), int)
    return facts if is_whole else None


def _file_name(index: int, count: int) -> str:
    return f"shard-{index:05d}-of-{count:05d}.safetensors"
