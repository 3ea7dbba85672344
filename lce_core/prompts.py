"""Build prompts without a model: of a finished cell to show them, of a planned one to check them.

Of a finished cell's prompts, the store saves only the lengths and one sha256. The benchmark builds
the prompts again, and the sha256 of all token ids must equal the one in the cell's record.

`python -m lce_core.prompts`, which the dashboard starts, prints one sample with its prompts as
JSON. After an error, the exit code is 2 and the message is on standard error.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import re
import sys
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.parquet as pq

from lce_core.benchmarks import (
    BENCHMARKS,
    CellRequest,
    Prompt,
    PromptBenchmark,
    decoded,
    prompts_sha256,
)
from lce_core.data.held_out import HeldOutText
from lce_core.errors import DataError, LceError, SpecError, StoreError, UnavailableError
from lce_core.execution import Execution
from lce_core.methods import METHODS
from lce_core.models import MODELS, LanguageModel
from lce_core.registry import Registry
from lce_core.store.artifacts import Store
from lce_core.store.cell_tables import SAMPLES_FILE
from lce_core.store.identity import ID_DIGITS
from lce_core.store.records import PROMPT_LIBRARIES, Record
from lce_core.store.steps import Step
from lce_core.study.step_kinds import CellSpec, spec_of

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True)
class RebuiltCell:
    """A finished cell with its prompts, which were verified against its record."""

    record: Record
    benchmark: PromptBenchmark
    base_model: LanguageModel
    tokenizer: PreTrainedTokenizerBase
    samples: Sequence[Mapping[str, Any]]
    prompts: Sequence[tuple[Prompt, ...]]
    """Prompts of each sample, usually one."""


def rebuilt_cell(
    store: Store,
    cell: str,
    model_folders: Mapping[str, Path] | None = None,
    data_folders: Mapping[str, Path] | None = None,
) -> RebuiltCell:
    """Build the prompts of a finished cell again and verify them against its record.

    `model_folders` and `data_folders` replace those in the cell's record.
    """
    record, folder = _found(store, cell)
    benchmark = _plugin(BENCHMARKS, record, "benchmark")
    if not isinstance(benchmark, PromptBenchmark):
        raise SpecError(
            f"cell {record.fingerprint[:ID_DIGITS]}",
            f"{benchmark.plugin_name}, which builds no prompts",
            "a cell of a benchmark that builds prompts",
            "choose a cell of another benchmark",
        )
    base_model: LanguageModel = _plugin(MODELS, record, "base_model")
    held_out = _held_out(store, record.parents["held_out"])
    models, data = (
        {name: Path(folder) for name, folder in (record.execution.get(key) or {}).items()}
        | dict(given or {})
        for key, given in (("model_folders", model_folders), ("data_folders", data_folders))
    )
    named = models.get(str(record.axes.get("base_model", base_model.known_as)))
    place = (record.spec["task"], record.spec["eval_length"], record.spec.get("seed"))
    request = _request(store, base_model, named, held_out, place, data)
    with store.file_facts.in_use():
        _require_data(record, benchmark, request)
        prompts = benchmark.prompts(request)
    size = benchmark.prompts_per_sample(request.task)
    of_samples = [prompts[first : first + size] for first in range(0, len(prompts), size)]
    rows = pq.read_table(folder / SAMPLES_FILE).to_pylist()
    digest, built = record.result["prompts_sha256"], prompts_sha256(prompts)
    difference = _difference(rows, of_samples)
    if difference is None and digest != built:
        difference = f"token ids with the sha256 {built[:ID_DIGITS]}, not {digest[:ID_DIGITS]}"
    if difference is not None:
        raise DataError(
            f"prompts of cell {record.fingerprint[:ID_DIGITS]}",
            f"different prompts after building them again: {difference}",
            "the prompts that the cell was evaluated with",
            f"rebuild them with the versions that computed the cell: {_provenance(record)}",
        )
    return RebuiltCell(record, benchmark, base_model, request.tokenizer, rows, of_samples)


def checked_prompts(store: Store, step: Step, execution: Execution) -> dict[str, int] | None:
    """Build the prompts of a planned cell, which a run then finds in the cache, and check them.

    Returns their number and `CellResult.checks`; None if the cell has no prompts. Raises LceError
    if they cannot be built now, or are too short for the cell.
    """
    spec = spec_of(step)
    if not (isinstance(spec, CellSpec) and isinstance(spec.benchmark, PromptBenchmark)):
        return None
    benchmark, base_model = spec.benchmark, spec.base_model
    folder = execution.model_folders.get(step.axes.get("base_model", base_model.known_as))
    held_out, reads = None, benchmark.reads_held_out(spec.task)
    if reads or benchmark.excerpt_tokens(base_model, spec.task, spec.eval_length):
        held_out = _held_out(store, step.parents["held_out"])
    place = (spec.task, spec.eval_length, spec.seed)
    request = _request(store, base_model, folder, held_out, place, execution.data_folders)
    with store.file_facts.in_use():
        prompts = benchmark.prompts(request)
    benchmark.require_filled(request, prompts)
    return {"num_prompts": len(prompts), **benchmark.checks(request, prompts)}


def _request(
    store: Store,
    base_model: LanguageModel,
    folder: Path | None,
    held_out: HeldOutText | None,
    place: tuple[str, int, int | None],
    data_folders: Mapping[str, Path],
) -> CellRequest:
    """Return a request without a model; `place` has the cell's task, length and seed."""
    tokenizer = base_model.tokenizer(folder or base_model.fetched(store.models))
    # Avoid the tokenizer's warning about texts longer than the model's context.
    tokenizer.model_max_length = sys.maxsize
    task, eval_length, seed = place
    return CellRequest(
        model=None,  # type: ignore[arg-type] # building prompts never runs the model
        tokenizer=tokenizer,
        base_model=base_model,
        held_out=held_out,  # type: ignore[arg-type] # only text that the benchmark reads
        task=task,
        eval_length=eval_length,
        seed=seed or 0,
        data_folders=data_folders,
        prompt_folder=store.prompts,
    )


def _found(store: Store, cell: str) -> tuple[Record, Path]:
    is_id = re.fullmatch(rf"[0-9a-f]{{{ID_DIGITS}}}", cell)
    folder = store.find(cell, "cell") if is_id else None
    if folder is None:
        raise SpecError(
            "cell",
            f"{cell!r}, which is not in the store {store.home}",
            f"the id of a finished cell, {ID_DIGITS} hexadecimal digits",
            'list the cells with `lce sql "SELECT * FROM cells"`',
        )
    record = _intact(store, folder)
    if record is None:
        raise StoreError(
            folder,
            "files that changed after they were committed",
            "the files that the cell's record lists",
            "run the study again, which evaluates the cell again",
        )
    return record, folder


def _intact(store: Store, folder: Path) -> Record | None:
    record = Record.find(folder)
    return record if record and store.is_intact(folder, record) else None


def _plugin(registry: Registry[Any], record: Record, part: str) -> Any:
    identity, where = record.spec.get(part), f"cell {record.fingerprint[:ID_DIGITS]}: {part}"
    if not (isinstance(identity, Mapping) and {"name", "version"} <= identity.keys()):
        raise DataError(
            where,
            repr(identity),
            "a name and a version, as lce writes them",
            "run the study again, which evaluates the cell again",
        )
    name = identity["name"]
    if name not in registry.names():
        raise SpecError(
            where,
            f"{name!r}, a plug-in that is not installed",
            "the plug-in that the cell was computed with",
            "name the plug-in's folder: `lce prompt CELL SAMPLE --plugins FOLDER`",
        )
    installed = registry.load(name).plugin_version
    if installed != identity["version"]:
        raise SpecError(
            where,
            f"VERSION {installed} of {name}, whose prompts may differ",
            f"VERSION {identity['version']}, with which the cell was computed",
            f"install the versions that computed it ({_provenance(record)}) or run the study again",
        )
    return registry.from_identity(identity)


def _held_out(store: Store, fingerprint: str) -> HeldOutText:
    folder = store.find(fingerprint, "held_out")
    if folder is None or _intact(store, folder) is None:
        raise UnavailableError(
            f"held_out {fingerprint[:ID_DIGITS]}",
            "a text that is missing from the store, or damaged",
            "the cell's held-out text",
            "run the study, which builds the text",
        )
    return HeldOutText.open(folder)


def _require_data(record: Record, benchmark: PromptBenchmark, request: CellRequest) -> None:
    digest = benchmark.digest(request.task, request.data_folders)
    if digest != record.spec.get("data"):
        names = ", ".join(one.name for one in benchmark.reads(request.task)) or "none"
        recorded = str(record.spec.get("data"))
        raise DataError(
            f"data of cell {record.fingerprint[:ID_DIGITS]}: {names}",
            f"files with the digest {str(digest)[:ID_DIGITS]}",
            f"files with the digest {recorded[:ID_DIGITS]}, with which the cell was computed",
            "name the folder of those files with --data-folder",
        )


def _difference(
    rows: Sequence[Mapping[str, Any]], of_samples: Sequence[tuple[Prompt, ...]]
) -> str | None:
    if len(rows) != len(of_samples):
        return f"{len(of_samples):,} samples, not {len(rows):,}"
    for row, prompts in zip(rows, of_samples, strict=True):
        depths = [prompt.depth for prompt in prompts if prompt.depth is not None]
        built = {
            "num_prompt_tokens": len(prompts[0].ids),
            "reference": " | ".join(prompt.reference for prompt in prompts),
            "depth": float(np.mean(depths)) if depths else None,
        }
        for name, value in built.items():
            if row[name] != value:
                return f"sample {row['sample']} with the {name} {value!r}, not {row[name]!r}"
    return None


def _provenance(record: Record) -> str:
    environment = record.environment
    commit = (environment.get("git") or {}).get("commit")
    parts = [f"commit {commit[:ID_DIGITS]}" if commit else "an unrecorded commit"]
    for name, release in (environment.get("libraries") or {}).items():
        if name in PROMPT_LIBRARIES and release != importlib.metadata.version(name):
            parts.append(f"{name} {release}")
    return ", ".join(parts)


@dataclass(frozen=True)
class ReadablePrompt:
    """A prompt's token ids and their text."""

    ids: list[int]
    text: str
    """All ids decoded, including special tokens."""
    is_exact: bool
    """True if encoding `text` again yields `ids`."""
    places: list[tuple[int, int]]
    """(start, end) character offsets of each occurrence of a right answer in `text`, ascending; of
    the prompt's evidence if `text` contains no right answer."""
    first_token: int | None
    """Index in `ids` of the token in which the first right answer starts; None if there is none."""


@dataclass(frozen=True)
class ReadableSample:
    """One sample of a finished cell, with its prompts."""

    cell: str
    sample: Mapping[str, Any]
    prompts: list[ReadablePrompt]
    tokenizer: str
    num_samples: int
    inserted_every: int | None
    """Block size of a method that inserts its own token at the end of every block; `prompts` lack
    these. None without such tokens, or if the installed VERSION differs from the cell's."""


def readable_sample(cell: RebuiltCell, sample: int) -> ReadableSample:
    if not 0 <= sample < len(cell.samples):
        raise SpecError(
            "sample",
            f"{sample}",
            f"the number of a sample of {cell.record.name}, 0 to {len(cell.samples) - 1}",
            "choose one of these numbers",
        )
    return ReadableSample(
        cell=cell.record.name,
        sample=cell.samples[sample],
        prompts=[readable(prompt, cell.tokenizer) for prompt in cell.prompts[sample]],
        tokenizer=cell.base_model.known_as,
        num_samples=len(cell.samples),
        inserted_every=_inserted_every(cell),
    )


def readable(prompt: Prompt, tokenizer: PreTrainedTokenizerBase) -> ReadablePrompt:
    ids: list[int] = prompt.ids.tolist()
    text = decoded(tokenizer, ids)
    places = places_of(prompt.right_answers, text) or places_of((prompt.evidence,), text)
    return ReadablePrompt(
        ids,
        text,
        tokenizer.encode(text, add_special_tokens=False) == ids,
        places,
        _token_at(tokenizer, ids, places[0][0]) if places else None,
    )


def places_of(answers: Sequence[str], text: str) -> list[tuple[int, int]]:
    spelled = [re.escape(one) for one in sorted(set(answers), key=len, reverse=True) if one.strip()]
    if not spelled:
        return []
    # Require a word boundary only where the answer begins or ends with a word character.
    pattern = rf"(?:(?<!\w)|(?!\w))(?:{'|'.join(spelled)})(?:(?!\w)|(?<!\w))"
    return [match.span() for match in re.finditer(pattern, text)]


def to_json(found: ReadableSample) -> dict[str, Any]:
    prompts = [{**asdict(prompt), "size": size(prompt)} for prompt in found.prompts]
    return {**asdict(found), "origin": list(origin(found)), "prompts": prompts}


def origin(found: ReadableSample) -> Iterator[str]:
    yield "Prompts were built again; the sha256 of their token ids matches the cell's record"
    yield f"Token ids decoded by the tokenizer of {found.tokenizer}, special tokens included"
    if found.inserted_every is not None:
        yield f"The method inserts a token after every {found.inserted_every - 1} of these tokens"


def size(prompt: ReadablePrompt) -> str:
    parts = [f"{len(prompt.ids):,} tokens, {len(prompt.text):,} characters"]
    if prompt.first_token is None:
        parts.append("contains no right answer word for word")
    else:
        times = f"{len(prompt.places):,} times" if len(prompt.places) > 1 else "once"
        share = prompt.first_token / len(prompt.ids)
        parts.append(
            f"contains a right answer {times}, first at token {prompt.first_token:,} ({share:.1%})"
        )
    if not prompt.is_exact:
        parts.append("inexact text: encoding it again yields other token ids")
    return "; ".join(parts)


def _token_at(tokenizer: PreTrainedTokenizerBase, ids: list[int], character: int) -> int:
    # Bisect decoded prefixes, because tokenizers report no offsets when decoding.
    ends = range(1, len(ids))
    return bisect_right(ends, character, key=lambda end: len(decoded(tokenizer, ids[:end])))


def _inserted_every(cell: RebuiltCell) -> int | None:
    # `from_identity` raises SpecError if the installed VERSION differs from the cell's.
    with suppress(SpecError):
        method = METHODS.from_identity(cell.record.spec["method"])
        insertion = method.insertion(cell.base_model.geometry)
        return None if insertion is None else insertion.block
    return None


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m lce_core.prompts")
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--cell", required=True)
    parser.add_argument("--sample", type=int, required=True)
    arguments = parser.parse_args()
    try:
        found = readable_sample(
            rebuilt_cell(Store(arguments.home), arguments.cell), arguments.sample
        )
    except LceError as error:
        sys.stderr.write(f"lce: {error}\n")
        return 2
    sys.stdout.write(json.dumps(to_json(found)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
