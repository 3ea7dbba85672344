"""A long cell in ranges: the same bits as in one go, whoever scores them, however often it dies."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import torch

from lce_core.benchmarks import CellRequest, CellResult
from lce_core.contracts.benchmark_cases import streams
from lce_core.evaluation import likelihood, long_cell
from lce_core.evaluation.long_cell import LongCell, assist
from lce_core.evaluation.passes import counted
from lce_core.evaluation.windows import LossCache
from lce_core.extension.extended_model import ExtendedModel
from lce_core.store.artifacts import Store
from lce_core.store.lease import Lease
from lce_core.store.parts import ORDER, Parts
from tests.support.cells import benchmark, request

STRIDED = {"profile": "clean", "stride": 64, "last": 32}


@pytest.fixture
def parts(tmp_path, monkeypatch) -> Parts:
    monkeypatch.setattr(long_cell, "NUM_RANGES", 7)
    monkeypatch.setattr(long_cell, "WAIT_SECONDS", 0.01)
    Store(tmp_path).prepare()
    return Parts(tmp_path / "progress" / "cell", tmp_path / "leases")


def a_cell(
    name: str = "perplexity", method: str = "yarn", length: int = 128, **parameters: Any
) -> CellRequest:
    parameters = parameters or (STRIDED if name == "perplexity" else {})
    # Two windows of the longest pass together, three of shorter ones: ranges hold whole batches.
    return request(
        benchmark(name, **parameters), length, method, held_out=streams(3000), batch_tokens=300
    )


def in_ranges(
    cell: CellRequest, parts: Parts, seconds: float = 0.0
) -> tuple[CellRequest, LongCell]:
    """The cell, a long one after so many seconds."""
    long = LongCell(parts, cell.model, batch_tokens=cell.batch_tokens, seconds=seconds)
    return replace(cell, cell=long, losses=LossCache()), long


def evaluated(cell: CellRequest, name: str = "perplexity", **parameters: Any) -> CellResult:
    parameters = parameters or (STRIDED if name == "perplexity" else {})
    return benchmark(name, **parameters).evaluate(cell)


def the_same(one: CellResult, other: CellResult) -> bool:
    arrays = one.arrays.keys() == other.arrays.keys() and all(
        one.arrays[name].tobytes() == other.arrays[name].tobytes() for name in one.arrays
    )
    return one == other and arrays


def files(parts: Parts) -> set[str]:
    return {path.name for path in parts.folder.glob("*.arrays") if "text" not in path.name}


@contextmanager
def passes_of(model: ExtendedModel) -> Iterator[list[torch.Tensor]]:
    """The ids of all that passes through a model, pass by pass."""
    passes: list[torch.Tensor] = []
    embeddings = model.model.get_input_embeddings()
    hook = embeddings.register_forward_pre_hook(lambda _, given: passes.append(given[0].clone()))
    yield passes
    hook.remove()


@pytest.mark.parametrize(
    ("method", "precision"),
    [
        ("ntk_frozen", torch.float32),
        ("self_extend", torch.float32),
        ("landmark", torch.float32),
        ("yarn", torch.bfloat16),
    ],
)
def test_the_losses_in_ranges_are_those_in_one_go(method, precision, parts):
    cell = a_cell(method=method)
    cell.model.model.to(precision)  # type: ignore[arg-type]
    with passes_of(cell.model) as in_one_go:
        whole = evaluated(cell)
    ranged, long = in_ranges(cell, parts)
    with passes_of(cell.model) as in_parts:
        assert the_same(evaluated(ranged), whole)
    # What passes together is the same: not all methods and kernels show it in their losses.
    assert len(in_parts) == len(in_one_go)
    assert all(map(torch.equal, in_parts, in_one_go))
    assert long.tokens_by_others == 0
    assert len(files(parts)) == (7 if precision == torch.bfloat16 else 6)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("perplexity", {"profile": "faithful", "stride": 50, "last": 20}),
        ("perplexity_documents", {"stride": 40}),
        ("nll_by_position", {"profile": "clean"}),
    ],
)
def test_every_benchmark_over_text_is_the_same_in_ranges(name, parameters, parts, monkeypatch):
    monkeypatch.setattr("lce_core.benchmarks._text.windows._GROUP_TOKENS", 1000)
    cell = a_cell(name, **parameters)
    whole = evaluated(replace(cell, losses=LossCache()), name, **parameters)
    ranged, _ = in_ranges(cell, parts)
    assert the_same(evaluated(ranged, name, **parameters), whole)
    assert len(files(parts)) > 3


def test_windows_that_are_known_are_neither_scored_nor_asked_for(parts):
    long, short = a_cell(method="none", length=128), a_cell(method="none", length=96)
    known = LossCache()
    evaluated(replace(long, losses=known))
    whole = evaluated(replace(short, model=long.model, losses=known))
    known = LossCache()
    evaluated(replace(long, losses=known))
    ranged, _ = in_ranges(replace(short, model=long.model), parts)
    with counted(long.model) as passed:
        assert the_same(evaluated(replace(ranged, losses=known)), whole)
    assert passed.tokens == 96  # the stream's end, where no longer window lies
    assert len(files(parts)) == 1


def test_a_cell_that_died_goes_on_with_the_ranges_that_are_there(parts, monkeypatch):
    cell = a_cell()
    with counted(cell.model) as whole_passed:
        whole = evaluated(cell)
    real, calls = likelihood.window_scores, 0

    def dying(*given: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 4:
            raise OSError("the power went")
        return real(*given, **options)

    ranged, _ = in_ranges(cell, parts)
    monkeypatch.setattr(likelihood, "window_scores", dying)
    with counted(cell.model) as before, pytest.raises(OSError, match="the power went"):
        evaluated(ranged)
    monkeypatch.setattr(likelihood, "window_scores", real)
    assert len(files(parts)) == 3
    ranged, long = in_ranges(cell, parts)
    with counted(cell.model) as after:
        assert the_same(evaluated(ranged), whole)
    assert before.tokens + after.tokens == whole_passed.tokens
    assert long.tokens_by_others == before.tokens
    assert long.seconds_by_others > 0


@pytest.mark.parametrize(
    ("name", "parameters", "dtype", "method", "kept"),
    [
        ("multi_key", {"profile": "tiny", "num_contexts": 5}, torch.float32, "self_extend", 2),
        ("passkey", {"profile": "tiny", "num_samples": 9}, torch.bfloat16, "yarn", 4),
        ("passkey", {"profile": "tiny", "num_samples": 9}, torch.float32, "yarn", 2),
        ("multi_turn", {"profile": "tiny"}, torch.bfloat16, "yarn", 2),
    ],
)
def test_a_cell_of_prompts_that_died_goes_on_with_the_answers_that_are_there(
    name, parameters, dtype, method, kept, parts
):
    cell = a_cell(name, method, **parameters)
    cell.model.model.to(dtype)
    with counted(cell.model) as whole_passed:
        whole = evaluated(cell, name, **parameters)
    long, _ = in_ranges(cell, parts)

    def dying(done: int, total: int) -> None:
        if len(files(parts)) == kept:
            raise OSError("the power went")

    with counted(cell.model) as before, pytest.raises(OSError, match="the power went"):
        evaluated(replace(long, report=dying), name, **parameters)
    assert 0 < before.tokens < whole_passed.tokens
    resumed, read = in_ranges(cell, parts)
    with counted(cell.model) as after:
        assert the_same(evaluated(resumed, name, **parameters), whole)
    assert before.tokens + after.tokens == whole_passed.tokens
    assert read.tokens_by_others == before.tokens


@pytest.mark.parametrize("damage", ["cut", "changed", "unfinished"])
def test_a_range_that_is_not_whole_is_scored_again(damage, parts):
    cell = a_cell()
    whole = evaluated(cell)
    ranged, _ = in_ranges(cell, parts)
    evaluated(ranged)
    file = parts.folder / min(files(parts))
    content = file.read_bytes()
    if damage == "cut":
        file.write_bytes(content[: len(content) // 2])
    elif damage == "changed":
        middle = len(content) // 2
        file.write_bytes(content[:middle] + b"lost" + content[middle + 4 :])
    else:  # whoever wrote it was killed before the rename
        file.rename(file.with_name(f".{file.name}.0123abcd"))
    ranged, _ = in_ranges(cell, parts)
    with counted(cell.model) as passed:
        assert the_same(evaluated(ranged), whole)
    assert passed.tokens > 0


def test_what_was_scored_before_a_cell_turned_out_long_is_committed_too(parts, monkeypatch):
    cell = a_cell()
    whole = evaluated(cell)
    ranged, long = in_ranges(cell, parts, seconds=600)
    real, calls = likelihood.window_scores, 0

    def counting(*given: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 3:
            assert not parts.folder.exists()
            long._long_at = 0.0
        return real(*given, **options)

    monkeypatch.setattr(likelihood, "window_scores", counting)
    assert the_same(evaluated(ranged), whole)
    assert calls == len(files(parts)) == 6


def test_ranges_are_shared_with_whoever_assists(parts, monkeypatch):
    real, names = long_cell._scored, list[tuple[int, ...]]()
    model, cell = a_cell().model, a_cell()
    helped, done = threading.Event(), threading.Event()

    def scored(passing: Any, windows: Any, *rest: Any) -> Any:
        names.append(tuple(windows.starts))
        found = real(passing, windows, *rest)
        if passing is model:
            helped.set()
        else:  # the cell itself, which waits in its first range until somebody assists
            assert helped.wait(200), "nobody assists"
        return found

    def help_out() -> None:
        while not done.wait(0.01):
            assist(parts, model)

    monkeypatch.setattr(long_cell, "_scored", scored)
    ranged, long = in_ranges(cell, parts)
    assistant = threading.Thread(target=help_out)
    assistant.start()
    try:
        with counted(cell.model) as passed:
            shared = evaluated(ranged)
    finally:
        done.set()
        assistant.join()
    with counted(cell.model) as whole:
        assert the_same(shared, evaluated(replace(cell, losses=LossCache())))
    assert len(set(names)) == len(names) == 6  # none twice
    assert long.tokens_by_others > 0
    assert passed.tokens + long.tokens_by_others == whole.tokens


def test_nobody_is_waited_for_who_died(parts):
    cell = a_cell()
    ranged, _ = in_ranges(cell, parts)
    whole = evaluated(ranged)
    first = min(files(parts))
    (parts.folder / first).unlink()
    lease = Lease.acquire(parts._leases, f"cell.{first.removesuffix('.arrays')}")
    assert lease is not None
    content = lease._path.read_text(encoding="utf-8")
    lease._path.write_text(content.replace('"pid": ', '"pid": 9'), encoding="utf-8")
    ranged, _ = in_ranges(cell, parts)
    assert the_same(evaluated(ranged), whole)


def test_another_sort_of_machine_neither_assists_nor_takes_over(parts, monkeypatch):
    cell = a_cell()
    ranged, _ = in_ranges(cell, parts)
    whole = evaluated(ranged)
    before = files(parts)
    (parts.folder / min(before)).unlink()
    assert len(parts.free()) == 1
    monkeypatch.setattr(long_cell, "arithmetic", lambda model: "H100, torch 3")
    assert assist(parts, cell.model) == 0
    ranged, long = in_ranges(cell, parts)
    assert the_same(evaluated(ranged), whole)  # here it is the same machine after all
    assert long.tokens_by_others == 0
    assert files(parts).isdisjoint({min(before)})
    assert len(files(parts)) == 11


def test_who_assists_a_cell_that_is_done_meanwhile_leaves_nothing_behind(parts, monkeypatch):
    cell = a_cell()
    ranged, _ = in_ranges(cell, parts)
    evaluated(ranged)
    for name in files(parts):
        (parts.folder / name).unlink()
    real = long_cell._scored

    def done_meanwhile(*given: Any) -> Any:
        found = real(*given)
        for path in parts.folder.iterdir():
            path.unlink()
        parts.folder.rmdir()
        return found

    monkeypatch.setattr(long_cell, "_scored", done_meanwhile)
    assert assist(parts, cell.model) == 0
    assert not parts.folder.exists()
    assert not list(parts._leases.glob("*.json"))
    assert assist(parts, cell.model) == 0
    assert parts.free() == []
    parts.open()
    (parts.folder / ORDER).write_text("{", encoding="utf-8")
    assert parts.free() == []
