"""`lce worker`: several processes over one store, as a cluster starts them.

Each has a host name of its own where the kernel allows it, so that leases are judged as on hosts.
"""

import contextlib
import re
import signal
import subprocess
from pathlib import Path

import psutil
import pytest

from lce_core.store.artifacts import Store
from tasks.worker import END
from tests.support.processes import marked, new_marker, playing, survivors
from tests.support.studies import (
    LCE,
    TINY_STEPS,
    computed,
    ended,
    on_host,
    results,
    wait_until,
    write_study,
)

pytestmark = pytest.mark.slow


def has_pending(process: psutil.Process, number: signal.Signals) -> bool:
    """Return True if a stopped process will get this signal when it goes on."""
    status = Path(f"/proc/{process.pid}/status").read_text(encoding="ascii")
    pending = [int(mask, 16) for mask in re.findall(r"^(?:Sig|Shd)Pnd:\s*(\w+)", status, re.M)]
    return any(mask >> (number - 1) & 1 for mask in pending)


def test_sigterm_gives_leases_back_and_loses_nothing(finished, text, tmp_path):
    home, study, marker = tmp_path / "home", write_study(tmp_path), new_marker()
    how = tmp_path / "how.yaml"
    how.write_text("checkpoint_seconds: 0.2\n", encoding="utf-8")
    arguments = (study, "--execution", str(how), *text)
    preempted = on_host("one", home, *arguments, "--grace", "0", env=marked(home, marker))

    def stopped_in_training() -> bool:
        """Stop the worker; let it go on if it is not training."""
        for process in playing(marker, "worker"):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.suspend()
                if list(home.glob("progress/*/point-*/point.json")):
                    return True
                process.resume()
        return False

    wait_until(stopped_in_training)
    (worker,) = playing(marker, "worker")
    before = len(list(Store(home).records()))
    preempted.send_signal(signal.SIGTERM)
    wait_until(lambda: has_pending(worker, END))  # however slow the machine is
    worker.resume()
    output = ended(preempted, 130)
    assert "stopped by SIGTERM" in output
    assert "Traceback" not in output
    # Judged from elsewhere such a lease would live for a minute and a half.
    assert list((home / "leases").glob("*.json")) == []
    assert list((home / "failures").glob("*.json")) == []
    assert list((home / "artifacts").glob("*/.attempt*")) == []
    assert list(home.glob("progress/*/point-*/point.json"))
    done = len(list(Store(home).records()))
    assert done == before
    other = on_host("two", home, *arguments)
    output = ended(other)
    assert "started" in output
    assert "finished" in output
    assert computed(output) == TINY_STEPS - done
    assert results(home) == results(finished)
    assert not (home / "prefect").exists()


def test_sigterm_to_every_process_leaves_units_the_grace(text, tmp_path):
    home, study, marker = tmp_path / "home", write_study(tmp_path), new_marker()
    command = [*LCE, "worker", study, "--grace", "60", *text]
    with subprocess.Popen(
        command,
        env=marked(home, marker),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as preempted:
        wait_until(lambda: list((home / "leases").glob("*.json")))
        for process in survivors(marker):  # as Slurm does
            with contextlib.suppress(psutil.NoSuchProcess):
                process.terminate()
        output = ended(preempted, 130)
    assert "released" not in output
    assert "1 computed" in output
    assert list((home / "leases").glob("*.json")) == []
    wait_until(lambda: not survivors(marker))
