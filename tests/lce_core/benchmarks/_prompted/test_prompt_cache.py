"""Prompts in memory, on disk, or built: found under all they follow from, and scored alike.

Each part of the key changes by itself; cells are scored without, before and after their files.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from flows.settings import STUDIES, make_execution
from lce_core.benchmarks import Benchmark, CellRequest
from lce_core.benchmarks._prompted import cache as _prompt_cache
from lce_core.benchmarks._prompted.cache import PromptCache, cell_prompts
from lce_core.benchmarks._prompted.files import read_prompts
from lce_core.benchmarks._prompted.retrieval import Prompt
from lce_core.benchmarks.ruler import RulerPrompt
from lce_core.contracts.toy_text import STORY, streams
from lce_core.runners import Runner
from lce_core.store.artifacts import Store
from lce_core.study.plan import compile_study
from lce_core.study.study_file import parse_study
from tests.support.cells import benchmark, request
from tests.support.data.subsets import state_rows
from tests.support.ruler.prompts import BPE, BYTES, stand_in_data
from tests.support.stored_prompts import WHOLE, same


@pytest.fixture
def restart(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Empties the memory of this process, and writes whatever is built from then on."""

    def start() -> None:
        monkeypatch.setattr(_prompt_cache, "CACHE", PromptCache(0, dear_seconds=0))

    start()
    return start


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The stand-ins for RULER's data sets, TREC and one task of LongBench."""
    root = tmp_path_factory.mktemp("data")
    found = stand_in_data(root)
    for name in ("trec", "longbench"):
        found[name] = root / name
        found[name].mkdir()
    lines = [f"NUM:date When was thing {number} ?" for number in range(30)]
    (found["trec"] / "train.txt").write_text("\n".join(lines[:20]), encoding="latin-1")
    (found["trec"] / "test.txt").write_text("\n".join(lines[20:]), encoding="latin-1")
    row = {
        "input": "Which lamp?",
        "context": STORY * 10,
        "answers": ["the lamp", "a lamp"],
        "length": 200,
        "dataset": "qasper",
        "language": "en",
        "all_classes": None,
        "_id": "1",
    }
    (found["longbench"] / "qasper.jsonl").write_text(json.dumps(row), encoding="utf-8")
    state_rows(found["longbench"], {"qasper.jsonl": 1})
    state_rows(found["trec"], {"train.txt": 20, "test.txt": len(lines) - 20})
    return found


# Memory, then disk, then building


def test_the_cache_builds_each_cell_once_and_forgets_the_oldest() -> None:
    built: list[int] = []

    def build(size: int) -> Sequence[Prompt]:
        built.append(size)
        return [Prompt(np.zeros(size, dtype=np.int64), "", None)]

    cache = PromptCache(100)
    for size in (60, 40, 60, 30, 60, 40, 500, 60):
        found = cache.get(["cell", size], lambda size=size: build(size), Prompt)  # type: ignore[misc]
        assert len(found[0].ids) == size
    assert built == [60, 40, 30, 40, 500, 60]


def test_only_what_took_long_is_written_and_only_where_a_folder_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(_prompt_cache.time, "perf_counter", lambda: now[0])

    def build(seconds: float) -> Sequence[Prompt]:
        now[0] += seconds
        return WHOLE

    cache = PromptCache(0, dear_seconds=5)
    for name, seconds, folder in (("a", 4.9, "quick"), ("b", 5, None), ("c", 5, "slow")):
        place = tmp_path / folder if folder else None
        cache.get([name], lambda seconds=seconds: build(seconds), RulerPrompt, place)  # type: ignore[misc]
    assert [path.name for path in tmp_path.iterdir()] == ["slow"]
    (file,) = (tmp_path / "slow").iterdir()
    assert same(read_prompts(file, RulerPrompt) or (), WHOLE)


def test_a_damaged_file_is_built_again_and_replaced_however_quickly(tmp_path: Path) -> None:
    def get() -> tuple[Prompt, ...]:
        return PromptCache(0, dear_seconds=100).get(["k"], lambda: WHOLE, RulerPrompt, tmp_path)

    PromptCache(0, dear_seconds=0).get(["k"], lambda: WHOLE, RulerPrompt, tmp_path)
    (file,) = tmp_path.iterdir()
    whole = file.read_bytes()
    for damaged in (b"", whole[:-7], whole[:50] + b"?" + whole[51:]):
        file.write_bytes(damaged)
        assert same(get(), WHOLE)
        assert file.read_bytes() == whole


def test_a_folder_that_cannot_be_written_costs_time_only(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    cache = PromptCache(0, dear_seconds=0)
    assert cache.get(["k"], lambda: WHOLE, RulerPrompt, tmp_path / "file") == WHOLE
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


# What the key holds


class Counted:
    """Builds prompts and counts how often."""

    def __init__(self, folder: Path, restart: Callable[[], None]) -> None:
        self._folder, self._restart, self._built = folder, restart, 0

    def misses(self, asked: Benchmark, cell: CellRequest, **options: Any) -> bool:
        """Whether a process that starts now has to build."""
        self._restart()
        before = self._built
        found = cell_prompts(
            asked, replace(cell, prompt_folder=self._folder), self._build, Prompt, **options
        )
        assert same(found, [Prompt(np.arange(3), "")])
        return self._built > before

    def _build(self) -> Sequence[Prompt]:
        self._built += 1
        return [Prompt(np.arange(3), "")]


def test_any_part_of_the_key_that_changes_misses(
    tmp_path: Path, restart: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    essays = tmp_path / "essays"
    essays.mkdir()
    (essays / "a.txt").write_text(STORY, encoding="utf-8")
    asked = benchmark("needle", trials=2)
    cell = request(asked, 512, data_folders={"essays": essays})
    misses = Counted(tmp_path / "prompts", restart).misses
    assert misses(asked, cell)
    assert not misses(asked, cell)

    bos = type(BPE)(tokenizer_object=BPE.backend_tokenizer, bos_token=" ")
    for changed in (
        {"task": "double"},
        {"eval_length": 513},
        {"seed": 1},
        {"tokenizer": BPE},
        {"tokenizer": bos},
    ):
        assert misses(asked, replace(cell, **changed)), changed
        assert not misses(asked, replace(cell, **changed)), changed
    assert misses(benchmark("needle", trials=3), cell)
    assert misses(benchmark("needle", trials=2, profile="fast"), cell)

    held_out = benchmark("needle", trials=2, haystack="held_out")
    assert misses(held_out, cell, reads_held_out=True)
    assert not misses(held_out, cell, reads_held_out=True)
    other = replace(cell, held_out=streams(19_999))  # type: ignore[arg-type]
    assert misses(held_out, other, reads_held_out=True)

    (essays / "a.txt").write_text(STORY * 2, encoding="utf-8")
    assert misses(asked, cell)
    monkeypatch.setattr(type(asked), "plugin_version", asked.plugin_version + 1)
    assert misses(asked, cell)
    monkeypatch.setattr(_prompt_cache, "_releases", lambda: {"numpy": "0"})
    assert misses(asked, cell)
    assert not misses(asked, cell)


def test_method_and_execution_are_no_part_of_the_key(
    tmp_path: Path, restart: Callable[[], None]
) -> None:
    asked = benchmark("passkey")
    misses = Counted(tmp_path, restart).misses
    assert misses(asked, request(asked, 512))
    other = request(asked, 512, "yarn", batch_tokens=64, savings=False)
    other = replace(other, held_out=streams(100))  # type: ignore[arg-type]
    assert not misses(asked, other)


def test_key_prompts_and_tokenizers_that_cannot_be_written_down_are_built_each_time(
    tmp_path: Path, restart: Callable[[], None]
) -> None:
    class Opaque:
        """A tokenizer without a backend."""

    misses, text = Counted(tmp_path, restart).misses, benchmark("passkey")
    for _ in range(2):
        assert misses(text, request(text, 512, tokenizer=Opaque()))
    tiny: Any = benchmark("passkey", profile="tiny")
    cell = request(tiny, 512, prompt_folder=tmp_path)
    first, second = tiny.prompts(cell), tiny.prompts(cell)
    assert same(first, second)
    assert first[0] is not second[0]
    assert not list(tmp_path.iterdir())


# Cells


CELLS = [
    ("ruler", "niah_multiquery", 1500, {"num_samples": 2}),
    ("ruler", "niah_single_2", 1500, {"num_samples": 2, "haystack": "held_out"}),
    ("ruler", "fwe", 1500, {"num_samples": 2, "profile": "faithful"}),
    ("ruler", "qa_1", 2000, {"num_samples": 2}),
    ("needle", "single", 900, {"trials": 1, "haystack": "held_out"}),
    ("passkey", "single", 512, {"num_samples": 3}),
    ("long_eval", "lines", 1200, {"num_samples": 3}),
    ("many_shot", "shots_3", 900, {"permutations": 2, "num_questions": 2, "shots": [3]}),
    ("longbench", "qasper", 500, {}),
]


@pytest.mark.parametrize(("name", "task", "length", "parameters"), CELLS)
def test_prompts_are_alike_without_the_folder_before_and_after_it_is_filled(
    name: str,
    task: str,
    length: int,
    parameters: dict[str, Any],
    folders: dict[str, Path],
    tmp_path: Path,
    restart: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: Any = benchmark(name, **parameters)
    cell = request(asked, length, task=task, data_folders=folders)
    stored = replace(cell, prompt_folder=tmp_path / "prompts")
    without = asked.prompts(cell)
    assert not list(tmp_path.iterdir())
    restart()
    assert same(asked.prompts(stored), without)
    assert len(list((tmp_path / "prompts").iterdir())) == 1
    restart()
    monkeypatch.setattr(type(asked), "build", None)  # from here on nothing can be built
    assert same(asked.prompts(stored), without)


@pytest.mark.slow
def test_cells_of_a_study_keep_their_prompts_in_its_store(
    tmp_path: Path, restart: Callable[[], None]
) -> None:
    study = yaml.safe_load((STUDIES / "smoke.yaml").read_text(encoding="utf-8"))
    study |= {
        "base_models": [{"name": "toy_llama", "steps": 2}],
        "methods": [{"name": "none"}],
        "benchmarks": [{"name": "passkey", "num_samples": 3, "lengths": [512]}],
        "seeds": [0],
    }
    plan = compile_study(parse_study(yaml.safe_dump(study), "test"), {})
    store = Store(tmp_path)
    store.prepare()
    runner = Runner(store, make_execution({"home": tmp_path, "device": "cpu"}), lambda event: None)
    kinds = ("rows", "held_out", "base", "cell")
    steps = sorted(plan.steps.values(), key=lambda step: kinds.index(step.kind))
    for step in steps:
        assert runner.ensure(step) == "computed"
    (file,) = store.prompts.iterdir()
    found = read_prompts(file, Prompt)
    restart()
    asked = benchmark("passkey", num_samples=3)
    expected = asked.prompts(request(asked, 512, tokenizer=BYTES))  # type: ignore[attr-defined]
    assert same(found or (), expected)
