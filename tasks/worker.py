"""The worker process: it reads requests, computes steps and writes events.

Requests and events are JSON objects, one per line. A request is {"steps": [...], "shared": ...,
"assists": ...}; `tasks.worker_process.Worker.run` explains the last two. The worker answers with
{"event": "progress", ...} while a step runs, {"event": "step", "fingerprint", "status", ...} when a
step ends ("held" if another process computes it), and {"event": "end"} after the last step.

The process exits when the pipe of requests closes. At SIGUSR1 it first releases the lease of the
running step.
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
"""Asks the worker to release its lease and exit with `ENDED`."""
ENDED = 143
"""The code that shells report after SIGTERM."""


def main() -> int:
    # Slurm sends SIGTERM to every process of a job, but the parent decides when this one exits. Use
    # a handler: training processes would inherit SIG_IGN, but must end on SIGTERM.
    signal.signal(signal.SIGTERM, lambda *_: None)
    signal.signal(END, _end)
    read, write = (int(fd) for fd in os.environ["LCE_WORKER_FDS"].split(","))
    with os.fdopen(read, encoding="utf-8") as requests, os.fdopen(write, "w") as events:
        execution = Execution.model_validate_json(requests.readline())
        add_plugin_folders(execution.plugin_folders)
        _serve(execution, requests, events)
    return 0


def _serve(execution: Execution, requests: TextIO, events: TextIO) -> None:
    # Import torch late: it takes seconds, and an unreadable request should fail before that.
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
            partial(_run_step, do, channel),
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
    """Compute the steps of a unit in order; skip steps whose lease another process holds.

    If another process holds the first missing step, that process has claimed the whole unit, unless
    the unit is shared: leave it all remaining steps. `ensure` sends a step's end event and returns
    its status; `send` gets the events of steps left to another process.
    """
    is_ours = shared
    for index, step in enumerate(steps):
        status = ensure(step)
        if status == "held" and not is_ours:
            for left in steps[index + 1 :]:
                send(_end_event(left) | {"status": "held", "seconds": 0.0})
            return
        is_ours |= status in ("computed", "failed")


def _end_event(step: Step) -> dict[str, Any]:
    return {"event": "step", "fingerprint": step.fingerprint}


def _run_step(do: Callable[[Step], str], channel: _Channel, step: Step) -> str:
    channel.step = step
    started = time.monotonic()
    event = _end_event(step)
    try:
        event["status"] = do(step)
    except Exception as error:  # noqa: BLE001 - the driver receives every error with its class
        event |= {"status": "failed", "class": classify(error), "error": type(error).__name__}
        event["message"] = str(error)[:2000]
    event["seconds"] = round(time.monotonic() - started, 3)
    channel.send(event)
    return str(event["status"])


def _end(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
    # sys.exit unwinds the stack, which removes the attempt and releases the lease. A second signal
    # must not interrupt that.
    signal.signal(END, signal.SIG_IGN)
    sys.exit(ENDED)


class _Channel:
    """Writes events to the run's process, progress events at most every `PROGRESS_SECONDS`."""

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
