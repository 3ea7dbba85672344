"""Provocations: calls that raise one error each, and a record of where errors are made."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from lce_core import errors
from tests.support.errors.error_sites import ERRORS, Site, sites
from tests.support.repository import ROOT


@dataclass(frozen=True)
class Place:
    """What a provocation may use."""

    folder: Path
    """Empty, and its own."""
    patch: pytest.MonkeyPatch
    """For time, network, CUDA and the operating system alone."""


@dataclass(frozen=True)
class Provocation:
    """A call that raises the error of one place."""

    file: str
    says: str
    """A part of the template of the place's message."""
    call: Callable[[Place], object]
    slow: bool
    """Whether it takes more than a few seconds."""

    def site(self) -> Site:
        """The place it claims; fails unless it is exactly one."""
        found = [
            site
            for site in sites()
            if site.file == self.file and self.says in f"{site.name}; {site.remedy}"
        ]
        assert len(found) == 1, f"{self.file}: {self.says!r} is part of {len(found)} messages"
        return found[0]


class Table(list[Provocation]):
    """Provocations of one package; `@table(file, says)` adds one."""

    def __call__(
        self, file: str, says: str, *, slow: bool = False
    ) -> Callable[[Callable[[Place], object]], Callable[[Place], object]]:
        def add(call: Callable[[Place], object]) -> Callable[[Place], object]:
            self.append(Provocation(file, says, call, slow))
            return call

        return add


@contextmanager
def recorded(patch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, int]]]:
    """File and line of every call that makes an error in this process."""
    made: list[tuple[str, int]] = []
    initialise = errors.LceError.__init__

    def noting(self: errors.LceError, *parts: str) -> None:
        frame = sys._getframe(1)
        while frame.f_back is not None and frame.f_code.co_filename.endswith(ERRORS):
            frame = frame.f_back
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(ROOT):
            made.append((path.relative_to(ROOT).as_posix(), frame.f_lineno))
        initialise(self, *parts)

    with patch.context() as context:
        context.setattr(errors.LceError, "__init__", noting)
        yield made
