"""Provocations: calls that raise one error each."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from lce_core.errors import LceError


@dataclass(frozen=True)
class Place:
    folder: Path
    """Empty, and its own."""
    patch: pytest.MonkeyPatch
    """For time, network, CUDA and the operating system alone."""


@dataclass(frozen=True)
class Provocation:
    kind: type[LceError]
    value: str | None
    """The value that the message names; None if it is the provocation's folder."""
    call: Callable[[Place], object]
    slow: bool
    """True if the call takes more than a few seconds."""


PROVOCATIONS: list[Provocation] = []


def provokes(
    kind: type[LceError], value: str | None = None, *, slow: bool = False
) -> Callable[[Callable[[Place], object]], None]:

    def add(call: Callable[[Place], object]) -> None:
        PROVOCATIONS.append(Provocation(kind, value, call, slow))

    return add
