"""Training and evaluation share GPUs: how many of each at a time, and on which."""

from pathlib import Path

import pytest

from lce_core.execution import Execution
from tasks import machines
from tasks.machines import cpu_quotas
from tasks.slots import Slot, SlotCounts, Slots, slot_counts
from tasks.workers import Pool

EIGHT = [str(number) for number in range(8)]


@pytest.mark.parametrize(
    ("gpus", "given", "slots"),
    [
        ((), {"slots": 4, "training_slots": 1}, (1, 4, 4)),
        ((0,), {"slots": 1, "evaluation_slots": 3}, (1, 3, 3)),
        ((8,), {"slots": 8, "processes": 4}, (2, 8, 8)),
        ((8,), {"slots": 2, "processes": 3}, (2, 2, 6)),
        ((8,), {"slots": 8, "training_slots": 1, "processes": 2}, (1, 8, 8)),
        ((4,), {"slots": 8, "processes": 8}, (0, 4, 4)),
        # A training run lies within one machine.
        ((6, 6), {"slots": 12, "processes": 4}, (2, 12, 12)),
        ((1, 1, 0), {"slots": 2}, (2, 2, 2)),
        ((0, 0), {"slots": 5}, (5, 5, 5)),
        ((8, 8), {"slots": 4}, (4, 4, 4)),
    ],
)
def test_how_many_at_a_time(gpus, given, slots):
    found = slot_counts(Execution(home=Path(), **given), gpus)  # type: ignore[arg-type]
    assert (found.training, found.evaluation, found.places) == slots


def taken(slots: Slots, kind: str) -> Slot:
    slot = slots.claim(kind)
    assert slot is not None
    return slot


def test_one_training_run_takes_all_gpus_and_evaluation_one_each():
    slots = Slots(SlotCounts(training=1, evaluation=8, places_per_training=8), EIGHT)
    training = taken(slots, "finetune")
    assert training.gpus == tuple(EIGHT)
    assert slots.claim("cell") is None
    assert slots.claim("base") is None
    slots.release(training)
    cells = [taken(slots, "cell") for _ in EIGHT]
    assert [slot.gpus for slot in cells] == [(gpu,) for gpu in EIGHT]
    assert slots.claim("rows") is None
    for slot in cells[1:]:
        slots.release(slot)
        assert slots.claim("finetune") is None
    assert slots.is_crowded_out("finetune")
    slots.release(cells[0])
    assert not slots.is_crowded_out("finetune")
    assert taken(slots, "finetune") == training


def test_training_takes_aligned_groups_so_that_two_runs_fit_beside_each_other():
    slots = Slots(SlotCounts(training=2, evaluation=8, places_per_training=4), EIGHT)
    cell = taken(slots, "cell")
    first = taken(slots, "finetune")
    assert (cell.places, first.places) == ((0,), (4, 5, 6, 7))
    assert slots.claim("finetune") is None
    assert slots.is_crowded_out("finetune")
    slots.release(cell)
    assert taken(slots, "finetune").places == (0, 1, 2, 3)
    assert not slots.is_crowded_out("finetune")  # at its limit: no other kind is in its way


def test_a_worker_that_is_there_is_preferred_and_one_that_would_have_to_end_is_spared():
    slots = Slots(SlotCounts(training=1, evaluation=4, places_per_training=2), EIGHT[:4])
    warm = [(0, 1), (3,)]
    assert [slots.claim("cell", warm).places for _ in range(4)] == [(3,), (2,), (0,), (1,)]  # type: ignore[union-attr]


def test_a_pool_without_training_leaves_gpus_to_others(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3")
    monkeypatch.setattr("tasks.machines.LEASE_FOLDER", tmp_path)
    asked = Execution(home=tmp_path, slots=3, processes=4)
    with Pool(asked).open() as pool:
        assert pool.slots.counts == SlotCounts(training=1, evaluation=3, places_per_training=4)
    with Pool(asked).open(trains=False) as pool, Pool(asked).open(trains=False) as other:
        assert pool.slots.counts == SlotCounts(training=0, evaluation=3, places_per_training=4)
        assert other.slots.counts.evaluation == 1


@pytest.mark.parametrize(
    ("own", "files", "quotas"),
    [
        ("0::/a/b\n", {"a/b/cpu.max": "max 100000", "a/cpu.max": "150000 100000"}, [1.5]),
        ("0::/\n", {"cpu.max": "200000 100000\n"}, [2.0]),
        (
            "5:cpu,cpuacct:/docker/x\n0::/docker/x\n",  # a container sees only its own part
            {"cpu/cpu.cfs_quota_us": "50000\n", "cpu/cpu.cfs_period_us": "100000\n"},
            [0.5],
        ),
        ("1:cpu:/\n", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, []),
        ("", {}, []),
    ],
    ids=["v2", "v2 in a container", "v1 in a container", "v1 without limit", "no cgroups"],
)
def test_a_containers_cpu_quota_is_that_of_all_its_cgroups(own, files, quotas, tmp_path):
    (tmp_path / "own").write_text(own)
    for name, content in files.items():
        file = tmp_path / "fs" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    assert cpu_quotas(tmp_path / "own", tmp_path / "fs") == quotas


def test_no_more_workers_than_the_cpu_quota_pays_for(monkeypatch):
    monkeypatch.setattr(machines, "cpu_quotas", lambda: [0.3, 8.0])
    assert machines.this_machine(Execution(home=Path(), device="cpu")).cpus == 1
