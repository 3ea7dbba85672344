"""Retries without Prefect: transient failures, as often as an execution allows."""

import threading

import pytest

from lce_core.errors import StepsFailedError, WorkerLostError
from tasks import units
from tasks.units import with_retries


def failed(kind: str) -> StepsFailedError:
    event = {"fingerprint": "a", "class": kind, "error": "OSError", "message": "gone"}
    return StepsFailedError("unit", [event])


PERMANENT = ("data", "non_finite", "disk_full", "defect", "unavailable")
LOST = WorkerLostError("unit", "a worker that ended", "one that lives", "read the log")


class Attempts:
    """Raises these errors in turn, then succeeds."""

    def __init__(self, *errors: Exception) -> None:
        self.errors, self.number = errors, 0

    def __call__(self) -> str:
        self.number += 1
        if self.number <= len(self.errors):
            raise self.errors[self.number - 1]
        return "done"


@pytest.fixture(autouse=True)
def no_delay(monkeypatch) -> None:
    monkeypatch.setattr(units, "DELAY_SECONDS", [0.0, 0.0])


def test_transient_failures_are_retried_beyond_the_last_delay():
    compute = Attempts(failed("transient"), LOST, failed("out_of_memory"), LOST)
    assert with_retries(compute, 5, threading.Event()) == "done"
    assert compute.number == 5


@pytest.mark.parametrize(
    ("error", "is_to_stop", "attempts"),
    [(LOST, False, 3), (LOST, True, 1), *((failed(kind), False, 1) for kind in PERMANENT)],
    ids=["lost for good", "lost while the run is to stop", *PERMANENT],
)
def test_the_last_attempt_raises_and_permanent_failures_have_no_second(error, is_to_stop, attempts):
    compute, stop = Attempts(*[error] * 9), threading.Event()
    if is_to_stop:
        stop.set()
    with pytest.raises(type(error)):
        with_retries(compute, 3, stop)
    assert compute.number == attempts
