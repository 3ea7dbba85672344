"""Provocations of the ground floor: registry, hub, store, data, corpora, models, study files."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import yaml
from pydantic import BaseModel, ValidationError, model_validator

from flows.settings import STUDIES
from lce_core import devices
from lce_core.benchmarks import CellResult, Score
from lce_core.corpora import CORPORA, Corpus, Document, Split, local_text
from lce_core.data.held_out import HeldOutText, pack_held_out
from lce_core.data.manifest import read_manifest
from lce_core.data.packing import PackedRows, pack_rows
from lce_core.execution import Execution
from lce_core.hub import fetch, is_address
from lce_core.methods import METHODS
from lce_core.models import MODELS
from lce_core.models._stock import check_config
from lce_core.models._weights_digest import weights_digest
from lce_core.recipe import Upsampling
from lce_core.registry import Registry, spec_error
from lce_core.runners import Runner, _require_finite
from lce_core.store.artifacts import Store
from lce_core.store.identity import canonical_json
from lce_core.store.lease import Lease
from lce_core.store.steps import Step, make_step
from lce_core.study.plan import compile_study
from lce_core.study.study_file import load_study, parse_study
from tests.support.provocations import Place, Table
from tests.support.training_jobs import BASE, Words, packed_rows

PROVOCATIONS = Table()
provokes = PROVOCATIONS
TOY: dict[str, Any] = yaml.safe_load((STUDIES / "toy.yaml").read_text(encoding="utf-8"))
LLAMA = MODELS.parse({"name": "llama2_7b"}, "base_models[0]")


# Study files


def study(says: str, file: str = "study_file", **changes: Any) -> None:
    """Registers an edit of the toy study that cannot be read."""
    text = yaml.safe_dump({**TOY, **changes})
    provokes(f"lce_core/study/{file}.py", says)(lambda _: parse_study(text, "my.yaml"))


study("a key of a study", metods=[])
study("a mapping or a name", corpus=3)
study("a list of at least one", seeds=[])
study("lengths of the benchmark", benchmarks=[{"name": "passkey"}])
study("tasks of", benchmarks=[{"name": "passkey", "lengths": [128], "tasks": ["twin"]}])
study("more than once", "spec", seeds=[1, 1])
study("inference only", "spec", methods=[{"name": "self_extend", "tuned": True}])
study("nothing without training", "spec", methods=[{"name": "landmark"}])
study("a multiple of target_context", "spec", target_context=500)
study("from 0 to 2^63", "spec", seeds=[-1])


@provokes("lce_core/study/study_file.py", "got nothing; expected a value for this key")
def _(_: Place) -> None:
    parse_study(yaml.safe_dump({key: TOY[key] for key in TOY if key != "seeds"}), "my.yaml")


@provokes("lce_core/study/study_file.py", "start with `study: name`")
def _(_: Place) -> None:
    parse_study("- 1", "my.yaml")


@provokes("lce_core/study/study_file.py", "plain YAML")
def _(_: Place) -> None:
    parse_study("study: a\nstudy: b\n", "my.yaml")


@provokes("lce_core/study/study_file.py", "a readable study file")
def _(place: Place) -> None:
    load_study(place.folder / "none.yaml")


@provokes("lce_core/study/study_file.py", "which is not UTF-8")
def _(place: Place) -> None:
    (place.folder / "a.yaml").write_bytes(b"\xff")
    load_study(place.folder / "a.yaml")


@provokes("lce_core/study/planned_training.py", "less than one step")
def _(_: Place) -> None:
    compile_study(parse_study(yaml.safe_dump({**TOY, "train_tokens": 1}), "my.yaml"), {})


# Registry


@provokes("lce_core/registry.py", "the name of a {kind}")
def _(_: Place) -> None:
    METHODS.parse({"name": "yan"}, "methods[0]")


@provokes("lce_core/registry.py", "an entry with a name")
def _(_: Place) -> None:
    METHODS.parse({}, "methods[0]")


@provokes("lce_core/registry.py", "an unknown key")
def _(_: Place) -> None:
    METHODS.parse({"name": "yarn", "beta_fst": 1.0}, "methods[0]")


@provokes("lce_core/registry.py", "_expectation(")
def _(_: Place) -> None:
    METHODS.parse({"name": "yarn", "beta_fast": -1.0}, "methods[0]")


@provokes("lce_core/registry.py", "a value for this key")
def _(_: Place) -> None:
    parse_study(yaml.safe_dump({**TOY, "training": {"learning_rate": 0.1}}), "my.yaml")


class _TheirModel(BaseModel):
    """A rule of somebody else's plug-in: one sentence, no parts."""

    size: int = 1

    @model_validator(mode="after")
    def _odd(self) -> _TheirModel:
        raise ValueError("size is odd")


@provokes("lce_core/registry.py", "values that fit together")
def _(_: Place) -> None:
    try:
        _TheirModel(size=2)
    except ValidationError as error:
        raise spec_error(error, "methods[0]", _TheirModel) from None


@provokes("lce_core/registry.py", "the installed version")
def _(_: Place) -> None:
    METHODS.from_identity({"name": "pi", "version": 0})


def plugin(place: Place, content: str) -> None:
    """Loads a file of methods from a folder of its own."""
    (place.folder / "provoked.py").write_text(content, encoding="utf-8")
    place.patch.syspath_prepend(place.folder.parent)
    (place.folder / "__init__.py").touch()
    Registry(place.folder.name, "METHOD", METHODS.kind).load("provoked")


@provokes("lce_core/registry.py", "a plug-in without {part}")
def _(place: Place) -> None:
    plugin(place, "METHOD = 1\n")


@provokes("lce_core/registry.py", "a subclass of")
def _(place: Place) -> None:
    plugin(place, "METHOD = 1\nSOURCE = 1\nEVIDENCE = ()\nVERSION = 1\n")


# Hub and devices


@provokes("lce_core/hub.py", "hub:OWNER/NAME@COMMIT")
def _(_: Place) -> None:
    is_address(Path("hub:somebody/something"))


@provokes("lce_core/hub.py", "neither in the hub cache")
def _(_: Place) -> None:
    fetch("nobody/nothing", "0" * 40, ["*"], ["*"], "dataset")


@provokes("lce_core/devices.py", "torch sees no CUDA device")
def _(place: Place) -> None:
    place.patch.setattr(devices, "count_accelerators", lambda: 0)
    devices.resolve_device("cuda")


# Store


def step() -> Step:
    return make_step("rows", "toy", {"tokens": 1}, {})


@provokes("lce_core/store/identity.py", "a finite number")
def _(_: Place) -> None:
    canonical_json({"rate": float("nan")}, "my.yaml:")


@provokes("lce_core/store/identity.py", "keys that are strings")
def _(_: Place) -> None:
    canonical_json({1: 2}, "my.yaml:")


@provokes("lce_core/store/identity.py", "which fingerprints are made of")
def _(_: Place) -> None:
    canonical_json({"when": object()}, "my.yaml:")


@provokes("lce_core/store/lease.py", "which took this step over")
def _(place: Place) -> None:
    lease = Lease.acquire(place.folder, "a")
    assert lease is not None
    (place.folder / "a.json").unlink()
    lease.require()


@provokes("lce_core/store/artifacts.py", "no file left")
def _(place: Place) -> None:
    store = Store(place.folder)
    store.prepare()
    store.ensure(step(), lambda _: {}, {})


@provokes("lce_core/store/artifacts.py", "a folder that can be created")
def _(place: Place) -> None:
    (place.folder / "home").write_text("a file", encoding="utf-8")
    Store(place.folder / "home").prepare()


@provokes("lce_core/store/artifacts.py", "free disk space")
def _(place: Place) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    place.patch.setattr(Path, "write_bytes", full)
    Store(place.folder).prepare()


@provokes("lce_core/runners.py", "no intact")
def _(place: Place) -> None:
    runner = Runner(Store(place.folder), Execution(home=place.folder), print)
    child = make_step("cell", "toy", {}, {"held_out": step()})
    runner._parent(child, "held_out")


@provokes("lce_core/runners.py", "finite scores")
def _(_: Place) -> None:
    score = Score("perplexity", float("inf"), None, None, 1, False)
    _require_finite(CellResult((score,)), step())


# Data


@provokes("lce_core/data/manifest.py", "no readable manifest")
def _(place: Place) -> None:
    read_manifest(place.folder)


class _Poems(Corpus):
    """One document of a domain that it may not name, or none."""

    plugin_name: ClassVar[str] = "poems"
    domain: str = "poems"
    text: str = "A rose."

    def domains(self) -> tuple[str, ...]:
        return ("poems",)

    def documents(self, split: Split, folders: Mapping[str, Path]) -> Iterator[Document]:
        yield Document(f"{split}-0", self.domain, self.text)


def pack(place: Place, corpus: Corpus, **changes: Any) -> None:
    options: dict[str, Any] = {"row_length": 8, "num_rows": 1, **changes}
    pack_rows(
        corpus,
        changes.pop("base", BASE),
        BASE.tokenizer(None),
        upsampling=Upsampling(),
        seed=0,
        folders={},
        out=place.folder,
        report=lambda _: None,
        row_length=options["row_length"],
        num_rows=options["num_rows"],
    )


@provokes("lce_core/data/packing.py", "with a token to predict")
def _(place: Place) -> None:
    pack(place, Words(), row_length=1)


@provokes("lce_core/data/packing.py", "of the manifest")
def _(place: Place) -> None:
    packed_rows(place.folder)
    (place.folder / "rows.bin").unlink(missing_ok=True)
    for file in place.folder.glob("*.bin"):
        file.unlink()
    PackedRows.open(place.folder)


@provokes("lce_core/data/sampling.py", "no tokens in the training split")
def _(place: Place) -> None:
    pack(place, _Poems(text=""))


@provokes("lce_core/data/tokenised.py", "of the corpus's domains")
def _(place: Place) -> None:
    pack(place, _Poems(domain="novels"))


@provokes("lce_core/data/tokenised.py", "vocabulary of")
def _(place: Place) -> None:
    from lce_core.data.tokenised import _write

    with (place.folder / "tokens").open("wb") as out:
        _write([[300]], [Document("a", "poems", "A rose.")], 256, np.dtype(np.uint16), out)


def held_out(place: Place, corpus: Corpus) -> HeldOutText:
    pack_held_out(
        corpus,
        BASE.tokenizer(None),
        tokens_per_domain=50,
        folders={},
        out=place.folder,
        report=lambda _: None,
    )
    return HeldOutText.open(place.folder)


@provokes("lce_core/data/held_out.py", "no held-out text")
def _(place: Place) -> None:
    held_out(place, _Poems(text=""))


@provokes("lce_core/data/held_out.py", "one of its domains")
def _(place: Place) -> None:
    held_out(place, _Poems()).stream("novels")


# Corpora


def corpus(place: Place, name: str, content: bytes, *, digest: bool = False) -> None:
    """Reads a folder with one file."""
    (place.folder / name).write_bytes(content)
    asked = CORPORA.parse({"name": "jsonl_folder", "folder": "mine"}, "corpus")
    if digest:
        asked.digest({"mine": place.folder})
    for split in ("train", "held_out"):
        list(asked.documents(split, {"mine": place.folder}))  # type: ignore[arg-type]


@provokes("lce_core/corpora/jsonl_folder.py", "distinct names")
def _(_: Place) -> None:
    settings = {"name": "jsonl_folder", "folder": "mine", "domain_names": ["a", "a"]}
    CORPORA.parse(settings, "corpus")


@provokes("lce_core/corpora/jsonl_folder.py", "no folder of this name")
def _(_: Place) -> None:
    asked = CORPORA.parse({"name": "jsonl_folder", "folder": "mine"}, "corpus")
    list(asked.documents("train", {}))


@provokes("lce_core/corpora/jsonl_folder.py", "no folder there")
def _(place: Place) -> None:
    asked = CORPORA.parse({"name": "jsonl_folder", "folder": "mine"}, "corpus")
    list(asked.documents("train", {"mine": place.folder / "none"}))


@provokes("lce_core/corpora/jsonl_folder.py", "no .jsonl or .txt file")
def _(place: Place) -> None:
    corpus(place, "a.md", b"text")


@provokes("lce_core/corpora/jsonl_folder.py", "file names in UTF-8")
def _(place: Place) -> None:
    corpus(place, "a\udcff.txt", b"text")


@provokes("lce_core/corpora/jsonl_folder.py", "one JSON object a line")
def _(place: Place) -> None:
    corpus(place, "a.jsonl", b"{\n")


@provokes("lce_core/corpora/jsonl_folder.py", "no text under")
def _(place: Place) -> None:
    corpus(place, "a.jsonl", b"{}\n")


@provokes("lce_core/corpora/jsonl_folder.py", "half a surrogate pair")
def _(place: Place) -> None:
    corpus(place, "a.jsonl", b'{"text": "\\ud800"}\n')


@provokes("lce_core/corpora/jsonl_folder.py", "add it to domain_names")
def _(place: Place) -> None:
    corpus(place, "a.jsonl", b'{"text": "a", "domain": "poems"}\n')


@provokes("lce_core/corpora/jsonl_folder.py", "got byte {byte}")
def _(place: Place) -> None:
    corpus(place, "a.txt", b"abc\xff", digest=True)


@provokes("lce_core/corpora/jsonl_folder.py", "a readable file")
def _(place: Place) -> None:
    (place.folder / "b.txt").symlink_to(place.folder / "none")
    corpus(place, "a.txt", b"abc")


@provokes("lce_core/corpora/local_text.py", "no Python sources")
def _(place: Place) -> None:
    place.patch.setattr(local_text, "_library", lambda: place.folder)
    list(CORPORA.parse({"name": "local_text"}, "corpus").documents("train", {}))


@provokes("lce_core/corpora/local_text.py", "a readable file")
def _(place: Place) -> None:
    (place.folder / "a.py").symlink_to(place.folder / "none")
    place.patch.setattr(local_text, "_library", lambda: place.folder)
    list(CORPORA.parse({"name": "local_text"}, "corpus").documents("train", {}))


@provokes("lce_core/corpora/local_text.py", "UTF-8 text")
def _(place: Place) -> None:
    (place.folder / "a.py").write_bytes(b"\xff")
    place.patch.setattr(local_text, "_library", lambda: place.folder)
    for split in ("train", "held_out"):
        list(CORPORA.parse({"name": "local_text"}, "corpus").documents(split, {}))  # type: ignore[arg-type]


# Models


def saved(place: Place) -> Path:
    """A folder with the configuration of a model that plug-ins know, and no weights."""
    LLAMA.config().save_pretrained(place.folder)  # type: ignore[attr-defined]
    return place.folder


@provokes("lce_core/models/_stock.py", "as base model")
def _(place: Place) -> None:
    other = MODELS.parse({"name": "phi2"}, "base_models[0]")
    check_config(other, saved(place))  # type: ignore[arg-type]


@provokes("lce_core/models/_stock.py", "no readable model configuration")
def _(place: Place) -> None:
    (place.folder / "config.json").write_text("{", encoding="utf-8")
    check_config(LLAMA, place.folder)  # type: ignore[arg-type]


@provokes("lce_core/models/_stock.py", "no readable tokenizer")
def _(place: Place) -> None:
    LLAMA.tokenizer(saved(place))


@provokes("lce_core/models/_stock.py", "no readable safetensors weights")
def _(place: Place) -> None:
    (saved(place) / "model.safetensors").write_bytes(b"none")
    LLAMA.load(place.folder, None)


@provokes("lce_core/models/_stock.py", "missing weights")
def _(place: Place) -> None:
    import torch
    from safetensors.torch import save_file

    place.patch.setattr(type(BASE), "_place", lambda *_, **__: place.folder)
    BASE.config().save_pretrained(place.folder)  # type: ignore[attr-defined]
    weights = {"model.norm.weight": torch.ones(BASE.config().hidden_size)}  # type: ignore[attr-defined]
    save_file(weights, place.folder / "model.safetensors", metadata={"format": "pt"})
    BASE.load(place.folder, torch.float32)


@provokes("lce_core/models/_stock.py", "no folder for a model that is on no hub")
def _(_: Place) -> None:
    BASE.load(None, None)


@provokes("lce_core/models/_stock.py", "a folder of your own")
def _(_: Place) -> None:
    LLAMA.load(None, None)


@provokes("lce_core/models/_stock.py", "a folder without config.json")
def _(place: Place) -> None:
    LLAMA.load(place.folder, None)


@provokes("lce_core/models/_weights_digest.py", "no model file")
def _(place: Place) -> None:
    weights_digest(place.folder)


@provokes("lce_core/models/_weights_digest.py", "cannot be read")
def _(place: Place) -> None:
    weights_digest(place.folder / "none")
