"""A long cell's windows in ranges, each scored and committed by itself.

Whoever computes a cell goes through its windows range by range. Once that has taken a while the
cell is a long one: what was scored so far is written down, the rest is asked for, and every range
is then committed by whoever holds its lease, this process or any other that has a slot to spare
(`assist`). A cell that was begun before goes on with the ranges that lie there. A short cell writes
nothing.

Ranges follow from the windows alone, and hold whole batches of those that pass together. So it
makes no difference to any bit who scored which. Only ranges of one sort of machine are merged
(`_arithmetic`), since others may round otherwise.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np

from lce_core.evaluation.loss_cache import TokenScores
from lce_core.evaluation.passes import counted, texts_together
from lce_core.evaluation.windows import Stream, Windows
from lce_core.reports import Progress, no_progress
from lce_core.store.array_files import Arrays
from lce_core.store.parts import Parts
from lce_core.store.records import cpu_name

if TYPE_CHECKING:
    from lce_core.extension.extended_model import ExtendedModel

LONG_SECONDS = 60.0
"""After so long at most a cell is a long one."""
NUM_RANGES = 64
"""Of all windows of one length, roughly: what is lost at most, and how many can share the work."""
ASSIST_SECONDS = 60.0
"""After so long whoever assists looks whether there is something else to do."""
WAIT_SECONDS = 0.2
"""Between two looks at ranges that others score."""


@dataclass(frozen=True, eq=False)
class _Range:
    windows: Windows
    rows: int
    """Windows that pass together."""
    name: str


class WindowRanges:
    """The ranges of one cell, in the process that computes it.

    Args:
      parts: where they are committed.
      model: what scores them.
      batch_tokens: upper limit of tokens in one forward pass.
      seconds: after which the cell is a long one.
    """

    def __init__(
        self, parts: Parts, model: ExtendedModel, *, batch_tokens: int, seconds: float
    ) -> None:
        self._parts, self._model, self._batch_tokens = parts, model, batch_tokens
        self._long_at = time.monotonic() + seconds
        self._is_open = parts.folder.is_dir()
        self._kept: dict[str, Arrays] = {}
        """What was scored before the cell was opened."""
        self._settled: set[str] = set()
        """Names of ranges that lie there, or did a moment ago."""
        self._own: set[str] = set()
        self.tokens_elsewhere = 0
        """Tokens that passed for ranges of this cell in other processes, or in earlier attempts."""
        self.seconds_elsewhere = 0.0
        """That these took."""

    def scores(
        self,
        windows: Windows,
        total: int,
        rest: Callable[[], Sequence[Windows]],
        report: Progress = no_progress,
    ) -> TokenScores:
        """Scores of windows, as `likelihood.window_scores` has them, to the bit.

        Args:
          windows: of one length.
          total: windows of the call that these are a part of, which decides the ranges' size.
          rest: gives the windows that the call will ask for after these, each time with as many
            together.
          report: told (windows done, windows in all) of `windows`.
        """
        ranges, found, done = self._split(windows, total), list[TokenScores](), 0
        for place, one in enumerate(ranges):
            if one.name not in self._settled and self._is_long():
                later = [other for some in rest() for other in self._split(some, total)]
                self._settle([*ranges[place:], *later], _from(done, report))
            found.append(self._scores_of(one, _from(done, report)))
            done += len(one.windows)
        return TokenScores(
            np.concatenate([one.nll for one in found]), np.concatenate([one.hits for one in found])
        )

    def _split(self, windows: Windows, total: int) -> list[_Range]:
        rows = texts_together(self._model, windows.length, self._batch_tokens)
        number = max(1, round(NUM_RANGES * len(windows) / total))
        size = rows * math.ceil(len(windows) / (number * rows))
        parts = [windows.rows(first, size) for first in range(0, len(windows), size)]
        return [_Range(part, rows, _name(part, rows, self._model)) for part in parts]

    def _is_long(self) -> bool:
        if not self._is_open and time.monotonic() >= self._long_at:
            self._parts.open()
            for name, arrays in self._kept.items():
                self._parts.write(name, arrays)
            self._own.update(self._kept)
            self._kept, self._is_open = {}, True
        return self._is_open

    def _settle(self, ranges: Sequence[_Range], report: Progress) -> None:
        """Asks for ranges, scores those that nobody has, and waits until all lie there."""
        self._ask(ranges)
        left = {one.name: one for one in ranges}
        total = _number(ranges)
        while left:
            before = len(left)
            for one in list(left.values()):
                if not self._parts.has(one.name):
                    lease = self._parts.lease(one.name)
                    if lease is None:
                        continue
                    with lease:
                        self._commit(one, _from(total - _number(left.values()), report))
                del left[one.name]
            if len(left) == before:
                time.sleep(WAIT_SECONDS)
        self._settled.update(one.name for one in ranges)

    def _ask(self, ranges: Sequence[_Range]) -> None:
        windows, rows = ranges[0].windows, ranges[0].rows
        text = f"text-{windows.stream.digest[:12]}"
        if not self._parts.has(text):
            self._parts.write(text, {"tokens": windows.stream.tokens})
        order = _Order(
            arithmetic=_arithmetic(self._model),
            text=text,
            length=windows.length,
            before=windows.before,
            rows=rows,
            parts={one.name: one.windows.starts.tolist() for one in ranges},
        )
        self._parts.ask(asdict(order))

    def _commit(self, one: _Range, report: Progress) -> None:
        if not self._parts.has(one.name):  # else it came between the look and the lease
            self._parts.write(one.name, _scored(self._model, one.windows, one.rows, report))
            self._own.add(one.name)

    def _scores_of(self, one: _Range, report: Progress) -> TokenScores:
        arrays: Arrays | None = None
        if one.name in self._settled:
            arrays = self._parts.read(one.name)
        if arrays is None:  # a short cell, or a damaged file
            arrays = _scored(self._model, one.windows, one.rows, report)
            if not self._is_open:
                self._kept[one.name] = arrays
        elif one.name not in self._own:
            self.tokens_elsewhere += int(arrays["passed"][0])
            self.seconds_elsewhere += float(arrays["seconds"][0])
        return TokenScores(arrays["nll"], arrays["hits"])


def assist(parts: Parts, model: ExtendedModel) -> int:
    """Scores ranges of a cell that another process computes, until nobody needs more of them.

    Args:
      parts: of the cell.
      model: the cell's.

    Returns:
      How many were scored. None is asked of this sort of machine, or all are taken, if 0; more may
      be to do after `ASSIST_SECONDS`.
    """
    content = parts.order()
    if content is None:
        return 0
    try:
        order, number, begun = _Order(**content), 0, time.monotonic()
    except TypeError:  # not what `ask` writes
        return 0
    text = parts.read(order.text)
    if text is None or order.arithmetic != _arithmetic(model):
        return 0
    stream = Stream(text["tokens"])
    for name, starts in order.parts.items():
        lease = None if parts.has(name) else parts.lease(name)
        if lease is None:
            continue
        with lease:
            if parts.has(name):
                continue
            windows = Windows(stream, np.array(starts), order.length, order.before)
            arrays = _scored(model, windows, order.rows, no_progress)
            try:
                parts.write(name, arrays)
            except FileNotFoundError:  # the cell is done
                return number
        number += 1
        if time.monotonic() - begun >= ASSIST_SECONDS:
            break
    return number


@dataclass(frozen=True)
class _Order:
    """Ranges that are asked for."""

    arithmetic: str
    text: str
    """Part that holds the tokens."""
    length: int
    before: int | None
    rows: int
    parts: dict[str, list[int]]
    """First tokens of each range's windows, by its name."""


def _scored(model: ExtendedModel, windows: Windows, rows: int, report: Progress) -> Arrays:
    from lce_core.evaluation import likelihood

    begun = time.monotonic()
    with counted(model) as passed:
        found = likelihood.window_scores(
            model,
            windows.ids(),
            following=windows.following(),
            batch_tokens=rows * windows.length,
            report=report,
        )
    return {
        "nll": found.nll,
        "hits": found.hits,
        "passed": np.array([passed.tokens]),
        "seconds": np.array([time.monotonic() - begun]),
    }


def _name(windows: Windows, rows: int, model: ExtendedModel) -> str:
    what = f"{_arithmetic(model)}; {windows.stream.digest} {windows.before} {windows.length} {rows}"
    return hashlib.sha256(what.encode() + windows.starts.tobytes()).hexdigest()[:16]


def _arithmetic(model: ExtendedModel) -> str:
    """What the last bits of a loss depend on besides the cell."""
    import torch

    device = model.model.device
    if device.type == "cuda":
        where = torch.cuda.get_device_name(device)
    else:
        where = f"{cpu_name()}, {torch.get_num_threads()} threads"
    return f"{where}, torch {torch.__version__}, {model.model.dtype}, {model.kernel}"


def _number(ranges: Iterable[_Range]) -> int:
    return sum(len(one.windows) for one in ranges)


def _from(first: int, report: Progress) -> Progress:
    return lambda done, total: report(first + done, total)
