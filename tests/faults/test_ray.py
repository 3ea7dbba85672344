"""A run over a Ray cluster: what one machine computes, also when a node dies in the middle.

Strategy: a cluster of two nodes, each with a declared GPU, that tests destroy in their order.
"""

import contextlib
import signal
from collections.abc import Iterator

import psutil
import pytest

from lce_core.store.artifacts import Store
from tests.support.hostile_variables import HOSTILE
from tests.support.processes import (
    holders,
    marked,
    new_marker,
    playing,
    require_no_dump,
    survivors,
)
from tests.support.ray_nodes import LOOPBACK, kill_node, processes_of, two_nodes
from tests.support.studies import (
    TINY_STEPS,
    computed,
    ended,
    lce,
    new_home,
    results,
    start,
    wait_until,
    write_study,
)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with two_nodes() as found:
        yield found


def computing() -> list[int]:
    """Processes that an actor left behind, on any node."""
    found = [*processes_of("head"), *processes_of("far")]
    return [process.pid for process in found if "tasks.worker" in " ".join(words(process))]


def words(process: psutil.Process) -> list[str]:
    with contextlib.suppress(psutil.Error):
        return process.cmdline()
    return []


def test_ctrl_c_gives_leases_back_and_leaves_the_cluster_as_it_was(
    migrated, text, address, tmp_path
):
    home, marker = new_home(migrated, tmp_path / "home"), new_marker()
    run = start(
        *(home, "run", write_study(tmp_path), "--engine", f"ray:{address}", *text),
        env=marked(home, marker) | HOSTILE | LOOPBACK,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    wait_until(lambda: list((home / "artifacts").glob("rows/jsonl*")))
    run.send_signal(signal.SIGINT)
    output = ended(run, 130)
    assert "interrupted; the same command continues" in output
    require_no_dump(output)
    wait_until(lambda: not survivors(marker))
    # By actors, which are not of the run's family.
    wait_until(lambda: not computing())
    # An actor that a busy machine kept from answering in time is killed; its lease is free at once.
    wait_until(lambda: not any(map(psutil.pid_exists, holders(home))))
    assert all(processes_of(node) for node in ("head", "far"))


def test_a_study_loses_a_node_in_the_middle_and_nothing_else(
    finished, migrated, text, address, tmp_path
):
    home, marker = new_home(migrated, tmp_path / "home"), new_marker()
    run = start(
        *(home, "run", write_study(tmp_path), "--engine", f"ray:{address}", *text),
        env=marked(home, marker) | HOSTILE | LOOPBACK,
    )

    def on_far_node() -> bool:
        """Return True if the node computes and some step is done."""
        far = {process.pid for process in processes_of("far")}
        busy = [one for one in playing(marker, "worker") if one.pid in far]
        return bool(busy) and bool(list((home / "artifacts").glob("rows/jsonl*")))

    wait_until(on_far_node)
    kill_node("far")
    before = {record.fingerprint for _, record in Store(home).records()}
    output = ended(run)
    assert 0 < len(before) < TINY_STEPS
    # The node may die after it published a step and before it said so. It computes one at a time,
    # but the shorter of two perplexities follows from the longer at once.
    assert TINY_STEPS - 2 <= computed(output) <= TINY_STEPS
    assert results(home) == results(finished)
    require_no_dump(output, "raylet")
    assert not list((home / "artifacts").glob("*/.attempt*"))
    assert not list((home / "failures").glob("*.json"))
    assert {record.execution["engine"] for _, record in Store(home).records()} == {f"ray:{address}"}
    wait_until(lambda: not survivors(marker))


def test_a_study_loses_the_head_and_goes_on_without_a_cluster(
    finished, migrated, text, address, tmp_path
):
    home, marker, study = new_home(migrated, tmp_path / "home"), new_marker(), write_study(tmp_path)
    run = start(
        *(home, "run", study, "--engine", f"ray:{address}", *text),
        env=marked(home, marker) | HOSTILE | LOOPBACK,
    )
    wait_until(lambda: list((home / "artifacts").glob("rows/jsonl*")))
    kill_node("head")
    before = {record.fingerprint for _, record in Store(home).records()}
    output = ended(run, 3)
    assert f"Ray's head at {address}: got no answer for 30 s" in output
    assert "restart the cluster, then repeat the command" in output
    require_no_dump(output, "raylet")
    wait_until(lambda: not survivors(marker))
    output = lce(home, "worker", study, *text)
    # A node that lives a little longer than the head may still end its step.
    assert 0 < computed(output) <= TINY_STEPS - len(before)
    assert results(home) == results(finished)
    assert not list((home / "artifacts").glob("*/.attempt*"))
