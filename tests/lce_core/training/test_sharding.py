"""Strategy: one process is the oracle of two that share the model; parts of points and kernels are
tested in this process, and files of a point against the tensors they were cut from, by
safetensors' own reader. Tensors are made when they are asked for, and counted while they live."""

import shutil
import time
import weakref
from collections.abc import Iterator, Mapping
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

from lce_core.errors import StoreError
from lce_core.methods import METHODS
from lce_core.models import MODELS
from lce_core.study.plugin_folders import add_plugin_folders
from lce_core.training.checkpoints import (
    Point,
    find_point,
    open_point,
    publish,
    sweep,
    write_shard,
    write_tensors,
)
from lce_core.training.run import run
from tests.lce_core.training.conftest import start
from tests.support.launched_jobs import run_together
from tests.support.process_trees import descendants, left
from tests.support.training_jobs import BASE, log, losses, silent, weights

UNTIED = '''"""The toy with a head of its own and an odd number of heads' rows."""

from typing import ClassVar

from lce_core.models import ModelShape
from lce_core.models.toy_llama import EVIDENCE, SOURCE, VERSION, ToyLlama

__all__ = ["EVIDENCE", "MODEL", "SOURCE", "VERSION"]


class UntiedLlama(ToyLlama):
    shape: ClassVar[ModelShape] = ModelShape(
        num_layers=3, hidden_size=96, intermediate_size=129, vocab_size=393
    )


MODEL = UntiedLlama
'''


@pytest.mark.slow
def test_a_shared_run_killed_at_any_moment_goes_on_exactly_also_in_one_process(make_job, tmp_path):
    (tmp_path / "plugins" / "models").mkdir(parents=True)
    (tmp_path / "plugins" / "models" / "untied_llama.py").write_text(UNTIED)
    add_plugin_folders((tmp_path / "plugins",))
    base = MODELS.load("untied_llama")()
    folder = tmp_path / "weights"
    base.initialise(3).save_pretrained(folder)
    BASE.tokenizer(None).save_pretrained(folder)
    changes: dict[str, Any] = {
        "base_model": base.identity(),
        "method": METHODS.parse({"name": "pi"}, "method").identity(),
        "from_scratch": False,
        "base_folder": folder,
        "target_context": 512,
        "num_steps": 40,
        "micro_batch_tokens": 128,
        "plugin_folders": (tmp_path / "plugins",),
    }
    shared = changes | {"processes": 2, "sharding": "shard"}
    training = {"ema_decay": 0.9}
    first = make_job(training, **shared, checkpoint_seconds=0.0)
    with start(first) as process:
        while not any(first.resume.glob("point-*")):
            assert process.poll() is None, "ended before it could be killed"
            time.sleep(0.005)
        family = descendants(process.pid)
        process.kill()
    assert left(family) == []  # none writes while its files are read
    point = max(first.resume.glob("point-*"))
    assert len(list(point.glob("shard-*"))) == 2
    alone = make_job(training, **changes)
    shutil.copytree(first.resume, alone.resume)

    undisturbed = make_job(training, **shared)
    second = make_job(training, **shared, resume=first.resume)
    _, facts = run_together([undisturbed, second], tmp_path)
    assert 0 < facts["resumed_from"] < 40
    assert losses(second) == losses(undisturbed)
    for name, tensor in weights(undisturbed).items():
        assert torch.equal(tensor, weights(second)[name]), name

    assert 0 < run(alone, silent)["resumed_from"] < 40
    assert losses(alone) == pytest.approx(losses(undisturbed), abs=1e-4)


def test_a_run_is_shared_on_gpus_or_on_demand(make_job):
    cpu, cuda = torch.device("cpu"), torch.device("cuda", 0)
    assert make_job(processes=2).is_sharded(cuda)
    assert not make_job(processes=2).is_sharded(cpu)
    assert make_job(processes=2, sharding="shard").is_sharded(cpu)
    assert not make_job(processes=1, sharding="shard").is_sharded(cuda)


@given(
    num_rows=st.integers(1, 12),
    written=st.integers(1, 5),
    wanted=st.tuples(st.integers(0, 12), st.integers(0, 12)),
)
def test_rows_of_shards_are_rows_of_the_whole(tmp_path_factory, num_rows, written, wanted):
    folder = tmp_path_factory.mktemp("points")
    whole = torch.arange(3.0 * num_rows).reshape(num_rows, 3)
    point, most = Point(folder, 3, 5), -(-num_rows // written)
    for index in range(written):
        tensors = {"weights/a": whole[index * most : (index + 1) * most]}
        if index == 0:
            tensors["optimizer/step/a"] = torch.tensor(3.0)
        write_shard(point, index, written, tensors)
    publish(point, "run", written)
    start, stop = sorted(min(row, num_rows) for row in wanted)
    with open_point(point) as saved:
        assert saved.scalar("optimizer/step/a") == 3
        found = saved.rows("weights/a", slice(start, stop))
    assert found.tolist() == whole[start:stop].tolist()


def written(folder: Path, step: int, token: int = 1, shards: int = 1) -> Point:
    """A point that is not published."""
    point = Point(folder, step, token)
    for index in range(shards):
        write_shard(point, index, shards, {"weights/a": torch.full((1,), float(token))})
    return point


def test_two_writers_never_mix_and_the_last_point_stays(tmp_path):
    mine, theirs = (written(tmp_path, 4, token, shards=2) for token in (1, 2))
    publish(mine, "run", 2)
    publish(theirs, "run", 2)
    assert find_point(tmp_path, "run") == theirs
    assert [path.name for path in tmp_path.iterdir()] == [theirs.path.name]
    for path in theirs.shards():
        assert load_file(path)["weights/a"] == 2


def test_who_was_silent_for_long_removes_no_later_point_of_who_took_over(tmp_path):
    _, late, mine = points = [written(tmp_path, step) for step in (2, 7, 5)]
    for point in points:
        publish(point, "run", 1)
    assert find_point(tmp_path, "run") == late
    assert {path.name for path in tmp_path.iterdir()} == {late.path.name, mine.path.name}


def test_unfinished_points_are_not_found_and_swept(tmp_path):
    written(tmp_path, 4, shards=2)
    assert find_point(tmp_path, "run") is None
    sweep(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_point_without_one_of_its_shards_is_none(tmp_path):
    point = written(tmp_path, 4, shards=2)
    publish(point, "run", 2)
    with pytest.raises(StoreError, match=r"run with hash 'run'; .* hash is 'other'"):
        find_point(tmp_path, "other")
    point.shards()[1].unlink()
    assert find_point(tmp_path, "run") is None


@pytest.mark.slow
def test_points_take_a_twentieth_of_the_time_at_most(make_job, monkeypatch):
    clock = count(0.0, 1.0)
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    seen: list[float] = []
    monkeypatch.setattr(
        "lce_core.training.checkpoints.publish", lambda *_: seen.append(next(clock))
    )
    job = make_job(num_steps=70, checkpoint_seconds=0.0)
    run(job, silent)
    assert len(seen) >= 3
    assert len({entry["tokens_per_second"] for entry in log(job)[1:]}) == 1
    # A point takes three ticks here, from one look at the clock to the next.
    assert all(later - earlier >= 60 for earlier, later in pairwise(seen))


DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64]


@given(
    shapes=st.lists(st.lists(st.integers(0, 5), max_size=3), min_size=1, max_size=5),
    dtype=st.sampled_from(DTYPES),
)
def test_what_is_written_is_what_is_read(tmp_path_factory, shapes, dtype):
    tensors = {f"a/{i}": torch.randn(shape).to(dtype) for i, shape in enumerate(shapes)}
    path = tmp_path_factory.mktemp("written") / "file"
    write_tensors(path, tensors)
    found = load_file(path)
    assert found.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert found[name].dtype == dtype
        assert torch.equal(found[name], tensor)


def test_rows_of_another_tensor_are_written_in_order(tmp_path):
    whole = torch.arange(12.0).reshape(3, 4)
    write_tensors(tmp_path / "file", {"turned": whole.T, "rows": whole[1:]})
    found = load_file(tmp_path / "file")
    assert torch.equal(found["turned"], whole.T)
    assert torch.equal(found["rows"], whole[1:])


class Made(Mapping[str, torch.Tensor]):
    """Tensors that exist from when they are asked for until they are let go."""

    def __init__(self) -> None:
        self.alive: weakref.WeakSet[torch.Tensor] = weakref.WeakSet()
        self.most = 0

    def __getitem__(self, name: str) -> torch.Tensor:
        made = torch.full((100,), float(name))
        self.alive.add(made)
        self.most = max(self.most, len(self.alive))
        return made

    def __iter__(self) -> Iterator[str]:
        return iter(map(str, range(20)))

    def __len__(self) -> int:
        return 20


def test_tensors_are_fetched_one_at_a_time(tmp_path):
    made = Made()
    write_tensors(tmp_path / "file", made)
    assert made.most <= 2
    assert load_file(tmp_path / "file")["19"].tolist() == [19.0] * 100
