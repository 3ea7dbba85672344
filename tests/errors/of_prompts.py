"""Provocations of prompts that cannot be built again."""

from __future__ import annotations

from typing import Any

from lce_core.prompts.reading import asked_sample
from lce_core.prompts.rebuilding import _require_data, asked_cell
from lce_core.store.artifacts import Store
from lce_core.store.records import Record
from tests.support.asked_cells import write_artifact, write_samples
from tests.support.cells import TOY, benchmark
from tests.support.errors.provocations import Place, Table
from tests.support.errors.provoked_cells import bare

PROVOCATIONS = Table()
provokes = PROVOCATIONS
FILE = "lce_core/prompts/rebuilding.py"
PRINT, TEXT = "ab" * 32, "cd" * 32
NEEDLE = benchmark("needle", profile="tiny", trials=1)


def made(place: Place, **spec: Any) -> Store:
    """A store with the record of a cell that nobody has computed."""
    cell: dict[str, Any] = {
        "benchmark": NEEDLE.identity(),
        "base_model": TOY.identity(),
        "task": "single",
        "eval_length": 128,
    }
    folder = place.folder / "artifacts" / "cell" / f"made-{PRINT[:12]}"
    write_samples(folder, {"sample": 0, "reference": "none", "num_prompt_tokens": 127})
    write_artifact(place.folder, "cell", PRINT, spec=cell | spec, parents={"held_out": TEXT})
    return Store(place.folder)


def named(name: str, version: int = 1) -> dict[str, Any]:
    return {"benchmark": {"name": name, "version": version}}


@provokes(FILE, "the id of a finished cell")
def _(place: Place) -> None:
    asked_cell(Store(place.folder), "none")


@provokes(FILE, "a cell as its record says")
def _(place: Place) -> None:
    store = made(place)
    write_samples(place.folder / "artifacts" / "cell" / f"made-{PRINT[:12]}")
    asked_cell(store, PRINT[:12])


@provokes(FILE, "a cell of a benchmark that asks prompts")
def _(place: Place) -> None:
    identity = benchmark("perplexity", profile="tiny").identity()
    asked_cell(made(place, benchmark=identity), PRINT[:12])


@provokes(FILE, "a name and a version")
def _(place: Place) -> None:
    asked_cell(made(place, benchmark="needle"), PRINT[:12])


@provokes(FILE, "which is no plug-in here")
def _(place: Place) -> None:
    asked_cell(made(place, **named("of_mine")), PRINT[:12])


@provokes(FILE, "with which the cell was computed")
def _(place: Place) -> None:
    asked_cell(made(place, **named("needle", 0)), PRINT[:12])


@provokes(FILE, "the held-out text that the cell was computed with")
def _(place: Place) -> None:
    asked_cell(made(place), PRINT[:12])


@provokes(FILE, "which the cell was computed with")
def _(place: Place) -> None:
    store = made(place, data="ef" * 32)
    (_, record), *_ = store.records()
    _require_data(record, NEEDLE, bare("single"))


@provokes(FILE, "those that the cell was asked")
def _(place: Place) -> None:
    from lce_core.data.manifest import file_digests, write_manifest

    folder = place.folder / "artifacts" / "held_out" / f"made-{TEXT[:12]}"
    folder.mkdir(parents=True)
    (folder / "stream-0.bin").write_bytes(bytes(1000))
    domains = [{"domain": "code", "tokens": 500, "documents": 1}]
    digests = file_digests(folder, "stream-0.bin")
    write_manifest(folder, {"dtype": "uint16", "domains": domains, "sha256": digests})
    write_artifact(place.folder, "held_out", TEXT)
    asked_cell(made(place), PRINT[:12])


@provokes("lce_core/prompts/reading.py", "the number of a sample")
def _(place: Place) -> None:
    from lce_core.prompts.rebuilding import AskedCell

    (_, record), *_ = made(place).records()
    assert isinstance(record, Record)
    tokenizer = TOY.tokenizer(None)
    asked_sample(AskedCell(record, NEEDLE, TOY, tokenizer, [], [], has_digest=False), 0)  # type: ignore[arg-type]
