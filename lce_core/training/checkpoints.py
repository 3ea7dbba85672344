"""Save and restore the state of a training run: weights, optimiser moments and the EMA.

    point-<step>-<token>/point.json                     step, identity, seconds, number of shards
    point-<step>-<token>/shard-<i>-of-<n>.safetensors

Data order, learning rate and dropout are functions of the step (`lce_core.training.schedule`), so a
resume point does not contain them. Shard i holds consecutive rows (first dimension) of every
tensor, so any number of processes can read a point that n processes wrote. Shard 0 also contains
the scalars and the tensors that are not sharded.

A writer fills a temporary folder, calls fsync and renames the folder, so a point is either complete
or absent.
"""

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
from torch.distributed.tensor import DTensor

from lce_core.errors import StoreError
from lce_core.store.odd_files import open_file, read_mapping
from lce_core.store.records import sync
from lce_core.training.optimizer import RoundedAdamW
from lce_core.training.sharding import local, local_rows

_ASIDE = "writing-"
_DTYPES = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16", torch.float64: "F64"}
_NAME = re.compile(r"point-(\d{9})-([0-9a-f]{12})")


@dataclass(frozen=True)
class Point:
    """Folder of a run's state after `step` updates; a random `token` separates writers."""

    folder: Path
    step: int
    token: int

    @property
    def path(self) -> Path:
        return self.folder / f"point-{self.step:09d}-{self.token:012x}"

    @property
    def aside(self) -> Path:
        return self.folder / f"{_ASIDE}{self.path.name}"

    def shards(self) -> list[Path]:
        count = json.loads((self.path / "point.json").read_text(encoding="utf-8"))["shards"]
        return [self.path / _file_name(index, count) for index in range(count)]


class WholeTensors:
    """Reader of a resume point that joins the rows of each tensor from all shard files."""

    def __init__(self, shards: list[Any]) -> None:
        self._shards = shards
        self.names: tuple[str, ...] = tuple(shards[0].keys())

    def scalar(self, name: str) -> Tensor:
        tensor: Tensor = self._shards[0].get_tensor(name)
        return tensor

    def rows(self, name: str, wanted: slice) -> Tensor:
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
    point.aside.mkdir(parents=True, exist_ok=True)
    path = point.aside / _file_name(index, count)
    try:
        write_tensors(path, tensors)
        sync(path)
    except OSError as error:
        text = f"the resume point cannot be written: {error.strerror}"
        raise OSError(error.errno, text, str(path)) from error


def publish(point: Point, identity: str, count: int, seconds: float = 0.0) -> None:
    """Rename a completely written resume point to its final name, then delete older points."""
    facts = point.aside / "point.json"
    content = {"step": point.step, "identity": identity, "shards": count, "seconds": seconds}
    facts.write_text(json.dumps(content), encoding="utf-8")
    sync(facts)
    sync(point.aside)
    point.aside.rename(point.path)
    sync(point.folder)
    for other in _points(point.folder):
        # Later points stay: this process may have been believed dead while another one went on.
        if other != point and other.step <= point.step:
            shutil.rmtree(other.path, ignore_errors=True)


def seconds_trained(folder: Path) -> float:
    """Return the seconds of all attempts until the latest resume point in `folder` was written."""
    return next((float(facts.get("seconds", 0.0)) for _, facts in _readable(folder)), 0.0)


def find_point(folder: Path, identity: str) -> Point | None:
    """Return the folder's latest readable resume point of run `identity`; None if there is none."""
    for point, facts in _readable(folder):
        if facts["identity"] != identity:
            raise StoreError(
                point.path,
                f"a resume point of the run with hash {facts['identity']!r}",
                f"resume points of this run, whose hash is {identity!r}",
                "remove this folder, then run the study again",
            )
        try:
            with open_point(point):
                return point
        except (SafetensorError, OSError):
            continue
    return None


@contextlib.contextmanager
def open_point(point: Point) -> Iterator[WholeTensors]:
    """Open a point's tensors; SafetensorError or OSError if a shard is damaged or missing."""
    shards = []
    with contextlib.ExitStack() as stack:
        for path in point.shards():
            open_file(path).close()  # safetensors would wait for the writer of a FIFO
            shards.append(stack.enter_context(safe_open(path, framework="pt")))
        yield WholeTensors(shards)


def sweep(folder: Path) -> None:
    """Delete temporary folders of killed writers; the main process calls this at its start."""
    for path in folder.glob(f"{_ASIDE}*"):
        shutil.rmtree(path, ignore_errors=True)


def _points(folder: Path) -> list[Point]:
    found = [_NAME.fullmatch(path.name) for path in folder.glob("point-*")]
    points = [Point(folder, int(name[1]), int(name[2], 16)) for name in found if name]
    return sorted(points, key=lambda point: point.step, reverse=True)


def _readable(folder: Path) -> Iterator[tuple[Point, dict[str, Any]]]:
    for point in _points(folder):
        try:
            facts = read_mapping(point.path / "point.json")
        except (OSError, ValueError):
            continue
        if isinstance(facts.get("identity"), str) and isinstance(facts.get("shards"), int):
            yield point, facts


def _file_name(index: int, count: int) -> str:
    return f"shard-{index:05d}-of-{count:05d}.safetensors"


def state_tensors(
    parameters: Mapping[str, Tensor],
    optimizer: torch.optim.Optimizer,
    ema: Mapping[str, Tensor],
    *,
    is_main: bool,
) -> dict[str, Tensor]:
    """Return this process's rows of sharded tensors and, on the main process, all other tensors."""
    tensors = {f"weights/{name}": tensor.detach() for name, tensor in parameters.items()}
    for name, tensor in parameters.items():
        for key, value in optimizer.state[tensor].items():
            tensors[f"optimizer/{key}/{name}"] = value
    tensors |= {f"average/{name}": tensor for name, tensor in ema.items()}
    return {
        name: local(tensor)
        for name, tensor in tensors.items()
        if is_main or isinstance(tensor, DTensor)
    }


@torch.no_grad()
def restore(
    saved: WholeTensors,
    parameters: Mapping[str, Tensor],
    optimizer: torch.optim.Optimizer,
    ema: Mapping[str, Tensor],
) -> None:
    for name, parameter in parameters.items():
        _fill(parameter, saved, f"weights/{name}")
    for name, tensor in ema.items():
        _fill(tensor, saved, f"average/{name}")
    for place in saved.names:
        kind, _, rest = place.partition("/")
        if kind != "optimizer":
            continue
        key, _, name = rest.partition("/")
        parameter = parameters[name]
        if key == "step":
            # RoundedAdamW reads the step count on the host. A count on the GPU would force a
            # synchronisation at every update.
            on_host = isinstance(optimizer, RoundedAdamW)
            value = saved.scalar(place).to("cpu" if on_host else parameter.device)
        else:
            value = torch.empty_like(parameter)
            _fill(value, saved, place)
        optimizer.state[parameter][key] = value


def _fill(tensor: Tensor, saved: WholeTensors, name: str) -> None:
    part = local(tensor)
    if part.numel():
        part.copy_(saved.rows(name, local_rows(tensor)))


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write a safetensors file of floating-point tensors, with one at a time in host memory.

    The safetensors library copies all tensors from the device before it writes: 81 GB at once for a
    7B model sharded over eight GPUs.
    """
    header, end = {}, 0
    for name, tensor in tensors.items():
        start, end = end, end + tensor.numel() * tensor.element_size()
        header[name] = {
            "dtype": _DTYPES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [start, end],
        }
    text = json.dumps(header).encode()
    # Pad the header so that the tensors start at a multiple of eight bytes.
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in header:
            flat = tensors[name].detach().cpu().contiguous().reshape(-1)
            file.write(flat.view(torch.uint8).numpy().data)
