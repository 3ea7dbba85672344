"""Units without Prefect: what may pass is tried again, as often as an execution says."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from lce_core.errors import StepsFailedError, WorkerLostError
from tasks import units
from tasks.units import compute_with_retries


def failed(kind: str) -> StepsFailedError:
    event = {"fingerprint": "a", "class": kind, "error": "OSError", "message": "gone"}
    return StepsFailedError("unit", [event])


LOST = WorkerLostError("unit", "a worker that ended", "one that lives", "read the log")


@pytest.fixture
def attempts(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[int]]:
    """Makes `compute` raise these errors in turn, then succeed; gives the list of attempts."""

    def make(*errors: Exception) -> list[int]:
        made: list[int] = []

        def compute(*_: Any) -> dict[str, Any]:
            made.append(len(made))
            if len(made) <= len(errors):
                raise errors[len(made) - 1]
            return {"unit": "unit"}

        monkeypatch.setattr(units, "compute", compute)
        monkeypatch.setattr(units, "RETRY_DELAYS", [0.0, 0.0])
        return made

    return make


def run(max_attempts: int, stop: threading.Event | None = None) -> dict[str, Any]:
    how = {"max_attempts": max_attempts}
    return compute_with_retries({}, how, {}, False, stop or threading.Event())


def test_what_may_pass_is_tried_again_beyond_the_last_delay(
    attempts: Callable[..., list[int]],
) -> None:
    made = attempts(failed("transient"), LOST, failed("out_of_memory"), LOST)
    assert run(5) == {"unit": "unit"}
    assert len(made) == 5


@pytest.mark.parametrize(("max_attempts", "number"), [(1, 1), (3, 3)])
def test_the_last_attempt_raises(
    max_attempts: int, number: int, attempts: Callable[..., list[int]]
) -> None:
    made = attempts(*[LOST] * 9)
    with pytest.raises(WorkerLostError):
        run(max_attempts)
    assert len(made) == number


@pytest.mark.parametrize("kind", ["data", "non_finite", "disk_full", "defect", "unavailable"])
def test_what_stays_is_not_tried_again(kind: str, attempts: Callable[..., list[int]]) -> None:
    made = attempts(failed(kind))
    with pytest.raises(StepsFailedError):
        run(5)
    assert len(made) == 1


def test_nothing_is_tried_again_once_the_run_is_to_stop(
    attempts: Callable[..., list[int]],
) -> None:
    stop, made = threading.Event(), attempts(LOST)
    stop.set()
    with pytest.raises(WorkerLostError):
        run(5, stop)
    assert len(made) == 1
