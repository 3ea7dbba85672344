"""Prompts in memory, on disk, or built: each part of the key changes by itself. Files of prompts
are read as they were written, or not at all."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lce_core.benchmarks import Benchmark, CellRequest
from lce_core.benchmarks._prompted import cache as _prompt_cache
from lce_core.benchmarks._prompted.cache import (
    PromptCache,
    cell_prompts,
    read_prompts,
    write_prompts,
)
from lce_core.benchmarks._prompted.retrieval import Prompt
from lce_core.contracts.benchmark_cases import STORY, streams
from lce_core.store.artifacts import Store
from lce_core.store.garbage import sweep
from tests.support.cells import benchmark, request
from tests.support.ruler.prompts import BPE
from tests.support.stored_prompts import WHOLE, same


@pytest.fixture
def restart(monkeypatch) -> Callable[[], None]:
    """Empties the memory of this process, and writes whatever is built from then on."""

    def start() -> None:
        monkeypatch.setattr(_prompt_cache, "CACHE", PromptCache(0, dear_seconds=0))

    start()
    return start


def test_the_cache_builds_each_cell_once_and_forgets_the_oldest():
    built: list[int] = []

    def build(size: int) -> Sequence[Prompt]:
        built.append(size)
        return [Prompt(np.zeros(size, dtype=np.int64), "", None)]

    cache = PromptCache(100)
    for size in (60, 40, 60, 30, 60, 40, 500, 60):
        found = cache.get(["cell", size], lambda size=size: build(size))
        assert len(found[0].ids) == size
    assert built == [60, 40, 30, 40, 500, 60]


def test_only_what_took_long_is_written_and_only_where_a_folder_is_given(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(_prompt_cache.time, "perf_counter", lambda: now[0])

    def build(seconds: float) -> Sequence[Prompt]:
        now[0] += seconds
        return WHOLE

    cache = PromptCache(0, dear_seconds=5)
    for name, seconds, folder in (("a", 4.9, "quick"), ("b", 5, None), ("c", 5, "slow")):
        place = tmp_path / folder if folder else None
        cache.get([name], lambda seconds=seconds: build(seconds), place)
    assert [path.name for path in tmp_path.iterdir()] == ["slow"]
    (file,) = (tmp_path / "slow").iterdir()
    assert same(read_prompts(file) or (), WHOLE)


def test_a_damaged_file_is_built_again_and_replaced_however_quickly(tmp_path):
    def get() -> tuple[Prompt, ...]:
        return PromptCache(0, dear_seconds=100).get(["k"], lambda: WHOLE, tmp_path)

    PromptCache(0, dear_seconds=0).get(["k"], lambda: WHOLE, tmp_path)
    (file,) = tmp_path.iterdir()
    whole = file.read_bytes()
    for damaged in (b"", whole[:-7], whole[:50] + b"?" + whole[51:]):
        file.write_bytes(damaged)
        assert same(get(), WHOLE)
        assert file.read_bytes() == whole


def test_a_folder_that_cannot_be_written_costs_time_only(tmp_path):
    (tmp_path / "file").touch()
    cache = PromptCache(0, dear_seconds=0)
    assert cache.get(["k"], lambda: WHOLE, tmp_path / "file") == WHOLE
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


class Counted:
    def __init__(self, folder: Path, restart: Callable[[], None]) -> None:
        self._folder, self._restart, self._built = folder, restart, 0

    def misses(self, asked: Benchmark, cell: CellRequest, **options: Any) -> bool:
        self._restart()
        before = self._built
        found = cell_prompts(
            asked, replace(cell, prompt_folder=self._folder), self._build, **options
        )
        assert same(found, [Prompt(np.arange(3), "")])
        return self._built > before

    def _build(self, _: CellRequest) -> Sequence[Prompt]:
        self._built += 1
        return [Prompt(np.arange(3), "")]


def test_any_part_of_the_key_that_changes_misses(tmp_path, restart, monkeypatch):
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

    # Method and execution are no part of the key.
    assert not misses(asked, replace(cell, model=None, batch_tokens=64, savings=False))
    held_out = benchmark("needle", trials=2, haystack="held_out")
    assert misses(held_out, cell, reads_held_out=True)
    assert not misses(held_out, cell, reads_held_out=True)
    other = replace(cell, held_out=streams(19_999))
    assert misses(held_out, other, reads_held_out=True)

    (essays / "a.txt").write_text(STORY * 2, encoding="utf-8")
    assert misses(asked, cell)
    monkeypatch.setattr(type(asked), "plugin_version", asked.plugin_version + 1)
    assert misses(asked, cell)
    monkeypatch.setattr(_prompt_cache, "_releases", lambda: {"numpy": "0"})
    assert misses(asked, cell)
    assert not misses(asked, cell)


def test_key_prompts_and_tokenizers_that_cannot_be_written_down_are_built_each_time(
    tmp_path, restart
):
    class Opaque: ...

    misses, text = Counted(tmp_path, restart).misses, benchmark("passkey")
    for _ in range(2):
        assert misses(text, request(text, 512, tokenizer=Opaque()))
    tiny: Any = benchmark("passkey", profile="tiny")
    cell = request(tiny, 512, prompt_folder=tmp_path)
    first, second = tiny.prompts(cell), tiny.prompts(cell)
    assert same(first, second)
    assert first[0] is not second[0]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["ruler", "one_ruler"])
def test_prompts_are_alike_without_the_folder_before_and_after_it_is_filled(
    name, tmp_path, restart, monkeypatch
):
    asked: Any = benchmark(name, num_samples=2)
    cell = request(asked, 1500)
    stored = replace(cell, prompt_folder=tmp_path / "prompts")
    without = asked.prompts(cell)
    assert not list(tmp_path.iterdir())
    restart()
    assert same(asked.prompts(stored), without)
    assert len(list((tmp_path / "prompts").iterdir())) == 1
    restart()
    monkeypatch.setattr(type(asked), "build", None)  # from here on nothing can be built
    assert same(asked.prompts(stored), without)


HOUR = 3600

tokens = st.lists(st.integers(0, 2**32 - 1), max_size=20)
ids = tokens.map(lambda row: np.array(row, dtype=np.int64))
depths = st.none() | st.floats(0, 100)
plain = st.builds(Prompt, ids, st.text(), depths)
full = st.builds(
    Prompt,
    ids,
    st.text(),
    depths,
    references=st.lists(st.text(), max_size=3).map(tuple),
    cluster=st.none() | st.text(),
    context_tokens=st.integers(0, 20),
)


@given(st.lists(plain, max_size=4) | st.lists(full, min_size=1, max_size=4))
def test_prompts_are_read_as_they_were_written_and_equal_ones_are_equal_files(prompts):
    with tempfile.TemporaryDirectory() as folder:
        first, second = Path(folder) / "new" / "a", Path(folder) / "b"
        write_prompts(first, prompts)
        found = read_prompts(first)
        assert found is not None
        assert same(found, prompts)
        write_prompts(second, found)
        assert first.read_bytes() == second.read_bytes()
        assert [file.name for file in first.parent.iterdir()] == ["a"]


WRITER = """
import sys
from pathlib import Path
from lce_core.benchmarks._prompted.cache import write_prompts
from tests.support.stored_prompts import WHOLE
prompts = WHOLE[:1] * 200
for _ in range(int(sys.argv[2])):
    write_prompts(Path(sys.argv[1]), prompts)
"""


@given(st.integers(0), st.integers(1, 255), st.sampled_from(["cut", "changed", "longer"]))
def test_damage_is_noticed_and_never_gives_other_prompts(place, change, damage):
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "prompts"
        write_prompts(file, WHOLE)
        content = bytearray(file.read_bytes())
        place %= len(content)
        if damage == "cut":
            del content[place:]
        elif damage == "changed":
            content[place] ^= change
        else:
            content += bytes(change)
        file.write_bytes(content)
        found = read_prompts(file)
        # A blank of the header may have become a tab.
        assert found is None or (damage == "changed" and same(found, WHOLE))


@pytest.mark.slow
def test_readers_see_whole_files_while_processes_write_and_one_is_killed(tmp_path):
    file, expected = tmp_path / "prompts", WHOLE[:1] * 200
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, file, str(times)]) for times in (100, 10**9)
    ]
    while not file.exists():
        assert any(writer.poll() is None for writer in writers)
        time.sleep(0.01)
    while writers[0].poll() is None:
        found = read_prompts(file)
        assert found is not None
        assert same(found, expected)
    writers[1].kill()
    assert [writer.wait() for writer in writers] == [0, -9]
    assert same(read_prompts(file) or (), expected)
    assert {path.name[:9] for path in tmp_path.iterdir()} <= {"prompts", ".prompts."}


def test_what_a_crash_left_is_removed_by_a_later_run(tmp_path):
    store = Store(tmp_path)
    left = {".prompts.0000001e": 30, ".prompts.00001c20": 2 * HOUR, ".nobackup": 2 * HOUR}
    store.prompts.mkdir()
    for name, age in left.items():
        (store.prompts / name).touch()
        os.utime(store.prompts / name, (time.time() - age,) * 2)
    sweep(store)
    assert {path.name for path in store.prompts.iterdir()} == {".prompts.0000001e", ".nobackup"}
