"""The process that computes steps: reads requests, answers with events, one JSON object a line.

Request: {"steps": [...], "shared": ..., "assists": ...}. Events: {"event": "progress", ...} while a
step runs, {"event": "step", "fingerprint", "status", ...} when one ended, {"event": "end"} after
the last of a request. A step that another process computes is not waited for; its status is "held".

The process ends when its requests end, or at SIGUSR1, once it has given back the lease of the step
it computes. It is started by `tasks.workers` under `tasks.supervisor`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import FrameType
from typing import Any, TextIO

from lce_core.execution import Execution
from lce_core.store.artifacts import Store
from lce_core.store.failures import classify
from lce_core.store.steps import Step
from lce_core.study.plugin_folders import add_plugin_folders

PROGRESS_SECONDS = 0.5
END = signal.SIGUSR1
"""Asks the process to end."""
ENDED = 143
"""Exit code after that; shells have it for SIGTERM."""


def main() -> int:
    """Serves requests until there are no more."""
    # Slurm sends SIGTERM to every process of a job: whoever started this one says when it ends.
    # To ignore it would be passed on to the processes of a training run, which must end by it.
    signal.signal(signal.SIGTERM, lambda *_: None)
    signal.signal(END, _end)
    read, write = (int(fd) for fd in os.environ["LCE_WORKER_FDS"].split(","))
    with os.fdopen(read, encoding="utf-8") as requests, os.fdopen(write, "w") as events:
        execution = Execution.model_validate_json(requests.readline())
        add_plugin_folders(execution.plugin_folders)
        _serve(execution, requests, events)
    return 0


def _serve(execution: Execution, requests: TextIO, events: TextIO) -> None:
    # Imported here: torch takes seconds, and an unreadable request should not wait for it.
    import torch

    from lce_core.runners import Runner

    torch.set_num_threads(execution.threads)
    channel = _Channel(events)
    runner = Runner(Store(execution.home), execution, channel.progress)
    for line in requests:
        request = json.loads(line)
        do = runner.assist if request["assists"] else runner.ensure
        compute(
            [Step(**payload) for payload in request["steps"]],
            partial(_ended, do, channel),
            channel.send,
            shared=request["shared"],
        )
        channel.send({"event": "end"})


def compute(
    steps: Sequence[Step],
    ensure: Callable[[Step], str],
    send: Callable[[Mapping[str, Any]], None],
    *,
    shared: bool,
) -> None:
    """Goes through the steps of a unit, past those that others hold.

    Where others hold the first that is not there, they have the unit: the rest of it is left to
    them, unless it is to be shared.

    Args:
      steps: of the unit.
      ensure: computes one if nobody does, and sends its end; gives its status.
      send: takes the ends of steps that are left to others.
      shared: whether the unit is shared.
    """
    is_ours = shared
    for place, step in enumerate(steps):
        status = ensure(step)
        if status == "held" and not is_ours:
            for left in steps[place + 1 :]:
                send(_end_of(left) | {"status": "held", "seconds": 0.0})
            return
        is_ours |= status in ("computed", "failed")


def _end_of(step: Step) -> dict[str, Any]:
    return {"event": "step", "fingerprint": step.fingerprint}


def _ended(do: Callable[[Step], str], channel: _Channel, step: Step) -> str:
    channel.step = step
    begun = time.monotonic()
    answer = _end_of(step)
    try:
        answer["status"] = do(step)
    except Exception as error:  # noqa: BLE001 - whatever it is goes to the driver with its class
        answer |= {"status": "failed", "class": classify(error), "error": type(error).__name__}
        answer["message"] = str(error)[:2000]
    answer["seconds"] = round(time.monotonic() - begun, 3)
    channel.send(answer)
    return str(answer["status"])


def _end(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
    # What unwinds removes the attempt and gives the lease back; no second signal may stop that.
    signal.signal(END, signal.SIG_IGN)
    sys.exit(ENDED)


class _Channel:
    """Writes events; progress at most every half second."""

    def __init__(self, events: TextIO) -> None:
        self._events, self._last = events, 0.0
        self.step: Step | None = None

    def send(self, event: Mapping[str, Any]) -> None:
        self._events.write(json.dumps(event) + "\n")
        self._events.flush()

    def progress(self, state: Mapping[str, Any]) -> None:
        now = time.monotonic()
        if now - self._last >= PROGRESS_SECONDS and self.step is not None:
            self._last = now
            self.send({"event": "progress", "fingerprint": self.step.fingerprint, **state})


if __name__ == "__main__":
    sys.exit(main())
