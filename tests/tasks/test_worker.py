"""What a worker does with steps that others hold."""

from __future__ import annotations

from typing import Any

import pytest

from tasks.worker import compute
from tests.support.free_steps import free_step

STEPS = [free_step("held_out", str(n), {"n": n}, {}) for n in range(4)]


def went(statuses: list[str], *, shared: bool = False) -> tuple[int, list[Any]]:
    """How many steps were asked for, and the ends that were sent besides theirs."""
    asked, sent = iter(statuses), []
    compute(STEPS, lambda step: next(asked), sent.append, shared=shared)
    return len(statuses) - len(list(asked)), sent


@pytest.mark.parametrize(
    ("statuses", "asked"),
    [
        (["computed"] * 4, 4),
        (["held", "computed", "computed", "computed"], 1),
        (["existing", "held", "computed", "computed"], 2),
        (["computed", "held", "held", "computed"], 4),
        (["failed", "held", "computed", "computed"], 4),
    ],
)
def test_a_unit_whose_next_step_is_held_is_left_to_who_holds_it(
    statuses: list[str], asked: int
) -> None:
    number, sent = went(statuses)
    assert number == asked
    assert [event["fingerprint"] for event in sent] == [s.fingerprint for s in STEPS[asked:]]
    assert {event["status"] for event in sent} <= {"held"}


def test_of_a_shared_unit_every_free_step_is_computed() -> None:
    assert went(["held", "computed", "held", "computed"], shared=True) == (4, [])
