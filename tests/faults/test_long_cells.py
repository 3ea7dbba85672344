"""A long cell over running text: killed in the middle, and shared by slots and hosts.

Strategy: a cell is computed by one worker, then in ranges by two slots that are killed, and to its
end by two hosts. Seconds that mark the ranges before the kill end up in the record.
"""

import contextlib
import shutil
import signal
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from filelock import FileLock

from lce_core.store.artifacts import Store
from lce_core.store.parts import from_bytes, to_bytes
from lce_core.store.records import Record
from tests.end_to_end.test_workers_of_a_cluster import on_host
from tests.support.processes import holders, marked, new_marker, survivors
from tests.support.studies import (
    HANG_SECONDS,
    TINY,
    library_text,
    results,
    start,
    wait_until,
    write_study,
)

pytestmark = pytest.mark.slow

STUDY: dict[str, Any] = TINY | {
    "study": "long",
    "base_models": [{"name": "toy_llama", "steps": 4}],
    "methods": [{"name": "self_extend", "window": 64, "group": 16}],
    "benchmarks": [
        {
            "name": "perplexity",
            "profile": "clean",
            "stride": 16,
            "last": 32,
            "lengths": [256],
            "domains": ["code"],
        }
    ],
}


def cell_of(home: Path) -> Record:
    (found,) = (record for _, record in Store(home).records() if record.kind == "cell")
    return found


def ranges_of(home: Path) -> Iterator[Path]:
    return (path for path in home.glob("progress/*/*.arrays") if "text" not in path.name)


def send(processes: Iterable[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(number)


def test_a_cell_in_ranges_outlives_kill_9_and_is_shared(tmp_path):
    library_text(tmp_path / "text")
    text = ("--data-folder", f"text={tmp_path / 'text'}")
    alone, home, study = tmp_path / "alone", tmp_path / "home", write_study(tmp_path, STUDY)
    how = tmp_path / "how.yaml"
    how.write_text("{checkpoint_seconds: 0.2, slots: 2}\n", encoding="utf-8")
    arguments = ("worker", study, *text)
    with start(alone, *arguments) as run:
        assert run.wait(timeout=HANG_SECONDS) == 0
    for kind in ("rows", "held_out", "base"):
        if (alone / "artifacts" / kind).is_dir():
            shutil.copytree(alone / "artifacts" / kind, home / "artifacts" / kind)

    marker = new_marker()
    environment = marked(home, marker)
    arguments += ("--execution", str(how))
    with start(home, *arguments, env=environment) as run:
        wait_until(lambda: len(list(ranges_of(home))) > 12)
        run.send_signal(signal.SIGKILL)
        output = run.communicate()[0]
    wait_until(lambda: not survivors(marker))
    assert "helper 1" in output
    committed = list(ranges_of(home))
    for path in committed:
        arrays = from_bytes(path.read_bytes())
        assert arrays is not None
        arrays["seconds"] += 1000
        path.write_bytes(to_bytes(arrays))

    how.write_text("checkpoint_seconds: 0.2\n", encoding="utf-8")
    here = start(home, *arguments, env=environment)
    wait_until(lambda: {*holders(home)} & {process.pid for process in survivors(marker)})
    # The first host waits until the second has scored a range, however slow the machine is.
    stopped = survivors(marker)
    with FileLock(home / "leases" / ".lock"):  # which none of them holds then
        send(stopped, signal.SIGSTOP)
    scored = len(list(ranges_of(home)))
    beside = on_host("another", home, *arguments[1:])
    wait_until(lambda: len(list(ranges_of(home))) > scored)
    send(stopped, signal.SIGCONT)
    outputs = [run.communicate(timeout=HANG_SECONDS)[0] for run in (here, beside)]
    assert (here.returncode, beside.returncode) == (0, 0), outputs
    assert "helper 1" in outputs[1], outputs
    assert results(home) == results(alone)
    cell, whole = cell_of(home), cell_of(alone)
    assert cell.result == whole.result
    assert cell.files == whole.files
    assert 1000 * len(committed) < cell.seconds < 1000 * (len(committed) + 1)
    assert not list((home / "progress").iterdir())
    assert not list((home / "leases").glob("*.json"))
