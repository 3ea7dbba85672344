"""The process that computes steps: reads requests, answers with events, one JSON object a line.

Request: {"steps": [...]}. Events: {"event": "progress", ...} while a step runs, {"event": "step",
"fingerprint", "status", ...} when one ended, {"event": "end"} after the last of a request. The
process ends when its requests end. It is started by `tasks.workers` under `tasks.supervisor`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from typing import Any, TextIO

from lce_core.execution import Execution
from lce_core.store.artifacts import Store
from lce_core.store.failures import classify
from lce_core.store.steps import Step
from lce_core.study.plugin_folders import add_plugin_folders

PROGRESS_SECONDS = 0.5


def main() -> int:
    """Serves requests until there are no more."""
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
        for payload in json.loads(line)["steps"]:
            _ensure(runner, Step(**payload), channel)
        channel.send({"event": "end"})


def _ensure(runner: Any, step: Step, channel: _Channel) -> None:
    channel.step = step
    begun = time.monotonic()
    answer: dict[str, Any] = {"event": "step", "fingerprint": step.fingerprint}
    try:
        answer["status"] = runner.ensure(step)
    except Exception as error:  # noqa: BLE001 - whatever it is goes to the driver with its class
        answer |= {"status": "failed", "class": classify(error), "error": type(error).__name__}
        answer["message"] = str(error)[:2000]
    answer["seconds"] = round(time.monotonic() - begun, 3)
    channel.send(answer)


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
