"""Keep the finished parts of a long cell, so that an interrupted cell continues with them.

A part is a range of windows, a prompt in half precision, a batch of prompts, or a context with its
questions. After `seconds` the cell counts as long: its process writes the parts that it has, and
then each one when it is finished. Only parts from equal machines are read again (`arithmetic`),
because other machines may round differently.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lce_core.evaluation.passes import counted
from lce_core.store.parts import Arrays, Parts
from lce_core.store.records import cpu_name

if TYPE_CHECKING:
    from lce_core.extension.extended_model import ExtendedModel


class LongCell:
    """The parts of one cell that its process computes or reads from an interrupted run."""

    def __init__(self, parts: Parts, model: ExtendedModel, *, seconds: float) -> None:
        self.parts, self.model = parts, model
        self._long_at = time.monotonic() + seconds
        self._is_open = parts.folder.is_dir()
        self._kept: dict[str, Arrays] = {}
        """Parts by name, in memory until the cell counts as long."""
        self.own: set[str] = set()
        self.tokens_by_others = 0
        self.seconds_by_others = 0.0

    @property
    def is_open(self) -> bool:
        return self._is_open

    def is_long(self) -> bool:
        """Return True if the cell is long; then write the parts that were kept in memory."""
        if not self._is_open and time.monotonic() >= self._long_at:
            self.parts.open()
            for name, arrays in self._kept.items():
                self.parts.write(name, arrays)
            self.own.update(self._kept)
            self._kept, self._is_open = {}, True
        return self._is_open

    def keep(self, name: str, arrays: Arrays) -> None:
        """Keep a part that this process computed."""
        if self.is_long():
            self.parts.write(name, arrays)
            self.own.add(name)
        else:
            self._kept[name] = arrays

    def read(self, name: str) -> Arrays | None:
        """Return a committed part; None if it is missing or damaged."""
        arrays = self.parts.read(name)
        if arrays is not None and name not in self.own:
            self.tokens_by_others += int(arrays["passed"][0])
            self.seconds_by_others += float(arrays["seconds"][0])
        return arrays

    def part(self, inputs: Sequence[NDArray[Any]], compute: Callable[[], Arrays]) -> Arrays:
        """Return the part that depends on `inputs`: of an interrupted run, or computed."""
        name = part_name(self.model, *inputs)
        found = self.read(name) if self._is_open and name not in self.own else None
        if found is None:
            found = measured(self.model, compute)
            self.keep(name, found)
        return found


def measured(model: ExtendedModel, compute: Callable[[], Arrays]) -> Arrays:
    """Return the arrays of `compute`, with the tokens that passed the model and the seconds."""
    start = time.monotonic()
    with counted(model) as passed:
        found = compute()
    seconds = time.monotonic() - start
    return {**found, "passed": np.array([passed.tokens]), "seconds": np.array([seconds])}


def part_name(model: ExtendedModel, *inputs: NDArray[Any] | str) -> str:
    total = hashlib.sha256(arithmetic(model).encode())
    for one in inputs:
        content = one.encode() if isinstance(one, str) else one.tobytes()
        total.update(f"; {len(content)} ".encode() + content)
    return total.hexdigest()[:16]


def arithmetic(model: ExtendedModel) -> str:
    """Describe device, torch version, dtype and kernel, on which the last bits of a loss depend."""
    import torch

    device = model.model.device
    if device.type == "cuda":
        where = torch.cuda.get_device_name(device)
    else:
        where = f"{cpu_name()}, {torch.get_num_threads()} threads"
    return f"{where}, torch {torch.__version__}, {model.model.dtype}, {model.kernel}"


def ragged(name: str, rows: Sequence[NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Return rows of different lengths as two arrays, for `rows_of`."""
    return {name: np.concatenate(rows), f"{name} lengths": np.array([len(row) for row in rows])}


def rows_of(arrays: Arrays, name: str) -> list[NDArray[Any]]:
    return np.split(arrays[name], np.cumsum(arrays[f"{name} lengths"])[:-1])
