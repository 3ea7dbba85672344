"""Keep the finished parts of a long cell, and score the windows of one in several processes.

A part is a range of windows, a prompt in half precision, a batch of prompts, or a context with its
questions. After `seconds` the cell counts as long: its process writes the parts that it has, and
then each one when it is finished. An interrupted cell continues with them. Only parts from equal
machines are read again (`arithmetic`), because other machines may round differently.

A long cell of windows also offers its remaining ranges to all processes with a free slot
(`assist`). A range is a whole number of batches, and the ranges depend only on the windows and the
batch size. Results are therefore bitwise equal, no matter which process scores which range.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lce_core.evaluation.passes import counted, texts_together
from lce_core.evaluation.windows import Stream, TokenScores, Windows
from lce_core.progress import Progress, no_progress, shifted
from lce_core.store.parts import Arrays, Parts
from lce_core.store.records import cpu_name

if TYPE_CHECKING:
    from lce_core.extension.extended_model import ExtendedModel

LONG_SECONDS = 60.0
"""Seconds after which a process offers the remaining ranges of its cell to other processes."""
NUM_RANGES = 64
"""Approximate ranges per cell: bounds the work lost in a crash and the number of helpers."""
ASSIST_SECONDS = 60.0
"""Seconds after which a helping process stops after its current range and takes other work."""
WAIT_SECONDS = 0.2
"""Poll interval while other processes score the remaining ranges."""


class LongCell:
    """The parts of one cell that its process computes or reads from an interrupted run.

    After `seconds` other processes help with the windows of the cell.
    """

    def __init__(
        self, parts: Parts, model: ExtendedModel, *, batch_tokens: int, seconds: float
    ) -> None:
        self.parts, self.model, self._batch_tokens = parts, model, batch_tokens
        self._long_at = time.monotonic() + seconds
        self.is_open = parts.folder.is_dir()
        self._kept: dict[str, Arrays] = {}
        """Parts by name, in memory until the cell counts as long."""
        self.own: set[str] = set()
        self._settled: set[str] = set()
        self.tokens_by_others = 0
        self.seconds_by_others = 0.0

    def is_long(self) -> bool:
        """Return True if the cell is long; then write the parts that were kept in memory."""
        if not self.is_open and time.monotonic() >= self._long_at:
            self.parts.open()
            for name, arrays in self._kept.items():
                self.parts.write(name, arrays)
            self.own.update(self._kept)
            self._kept, self.is_open = {}, True
        return self.is_open

    def keep(self, name: str, arrays: Arrays) -> None:
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
        found = self.read(name) if self.is_open and name not in self.own else None
        if found is None:
            found = measured(self.model, compute)
            self.keep(name, found)
        return found

    def scores(
        self,
        windows: Windows,
        total: int,
        rest: Callable[[], Sequence[Windows]],
        report: Progress = no_progress,
    ) -> TokenScores:
        """Score windows, alone or with other processes, bitwise equal to `window_scores`.

        `total` windows, which decide the size of the ranges, are scored by all calls for the cell.
        `rest` returns the windows of the caller's later calls, one Windows per call.
        """
        ranges, found, done = self._split(windows, total), list[Arrays](), 0
        for place, (name, part) in enumerate(ranges):
            progress = shifted(report, done, len(windows))
            if name not in self._settled and self.is_long():
                later = [other for some in rest() for other in self._split(some, total)]
                self._settle([*ranges[place:], *later], progress)
            arrays = self.read(name) if name in self._settled else None
            # None in a short cell, or if the committed file is damaged.
            if arrays is None:
                arrays = self._scored(part, progress)
                if not self.is_open:
                    self.keep(name, arrays)
            found.append(arrays)
            done += len(part)
        return TokenScores(
            *(np.concatenate([one[key] for one in found]) for key in ("nll", "hits"))
        )

    def _split(self, windows: Windows, total: int) -> list[tuple[str, Windows]]:
        """Return the ranges of windows, each with its name."""
        rows = self._rows(windows)
        number = max(1, round(NUM_RANGES * len(windows) / total))
        size = rows * math.ceil(len(windows) / (number * rows))
        parts = [windows.rows(first, size) for first in range(0, len(windows), size)]
        what = f"{windows.stream.digest} {windows.before} {windows.length} {rows}"
        return [(part_name(self.model, what, part.starts), part) for part in parts]

    def _rows(self, windows: Windows) -> int:
        return texts_together(self.model, windows.length, self._batch_tokens)

    def _settle(self, ranges: Sequence[tuple[str, Windows]], report: Progress) -> None:
        first, left = ranges[0][1], dict(ranges)
        text = f"text-{first.stream.digest[:12]}"
        if not self.parts.has(text):
            self.parts.write(text, {"tokens": first.stream.tokens})
        request = {
            "arithmetic": arithmetic(self.model),
            "text": text,
            "length": first.length,
            "before": first.before,
            "rows": self._rows(first),
            "parts": {name: part.starts.tolist() for name, part in ranges},
        }
        self.parts.ask(request)
        total = sum(len(windows) for _, windows in ranges)
        while left:
            before = len(left)
            for name, windows in list(left.items()):
                if not self.parts.has(name):
                    lease = self.parts.lease(name)
                    if lease is None:
                        continue
                    done = total - sum(map(len, left.values()))
                    with lease:
                        # Another process may have committed the range before the lease.
                        if not self.parts.has(name):
                            self.keep(name, self._scored(windows, shifted(report, done, total)))
                del left[name]
            if len(left) == before:
                time.sleep(WAIT_SECONDS)
        self._settled.update(name for name, _ in ranges)

    def _scored(self, windows: Windows, report: Progress) -> Arrays:
        return _scored(self.model, windows, self._rows(windows), report)


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


_KEYS = {"arithmetic", "text", "length", "before", "rows", "parts"}
"""Keys of a request; another version of lce on a shared store may write others."""


def assist(parts: Parts, model: ExtendedModel) -> int:
    """Score ranges of another process's cell until none is free or `ASSIST_SECONDS` have passed.

    Returns the number of ranges scored, which is 0 if this machine may score none.
    """
    request = parts.order()
    if request is None or request.keys() != _KEYS or request["arithmetic"] != arithmetic(model):
        return 0
    text = parts.read(request["text"])
    if text is None:
        return 0
    stream, number, start = Stream(text["tokens"]), 0, time.monotonic()
    for name, starts in request["parts"].items():
        lease = None if parts.has(name) else parts.lease(name)
        if lease is None:
            continue
        with lease:
            if parts.has(name):
                continue
            windows = Windows(stream, np.array(starts), request["length"], request["before"])
            arrays = _scored(model, windows, request["rows"], no_progress)
            try:
                parts.write(name, arrays)
            # The cell was finished and its folder removed meanwhile.
            except FileNotFoundError:
                return number
        number += 1
        if time.monotonic() - start >= ASSIST_SECONDS:
            break
    return number


def _scored(model: ExtendedModel, windows: Windows, rows: int, report: Progress) -> Arrays:
    from lce_core.evaluation import likelihood

    def compute() -> Arrays:
        found = likelihood.score_windows(model, windows, rows * windows.length, report)
        return {"nll": found.nll, "hits": found.hits}

    return measured(model, compute)
