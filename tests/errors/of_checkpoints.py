"""Provocations of exported and of published checkpoints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from lce.keeping.exporting import export_variant
from lce_core.execution import Execution
from lce_core.export.folder import export
from lce_core.export.form import form_of
from lce_core.export.subject import Subject
from lce_core.extension.stock_rope import stated_parameters
from lce_core.methods import METHODS
from lce_core.models import MODELS
from lce_core.study.plan import compile_study
from lce_core.study.published import named_folder, published_folder
from lce_core.study.study_file import parse_study
from tests.support.errors.provocations import Place, Table
from tests.support.toy_study import TOY
from tests.support.training_jobs import BASE

PROVOCATIONS = Table()
provokes = PROVOCATIONS
FORM, FOLDER = "lce_core/export/form.py", "lce_core/export/folder.py"
PUBLISHED, EXPORTING = "lce_core/study/published.py", "lce/keeping/exporting.py"
LLAMA = MODELS.parse({"name": "llama2_7b"}, "test").geometry
PHI = MODELS.parse({"name": "phi2"}, "test").geometry
CONFIG = {
    "model_type": "llama",
    "hidden_size": 96,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "vocab_size": 392,
    "max_position_embeddings": 512,
}


def subject(weights: Path) -> Subject:
    return Subject("toy", "pi", BASE, METHODS.load("pi")(), 512, weights)


@provokes(FORM, "puts into every text")
def _(_: Place) -> None:
    form_of(METHODS.load("landmark")(), LLAMA, 32768)


@provokes(FORM, "the only kind that stock models have")
def _(_: Place) -> None:
    form_of(METHODS.load("self_extend")(), LLAMA, 32768)


@provokes(FORM, "heads with frequencies of their own")
def _(_: Place) -> None:
    form_of(METHODS.load("harpe")(), LLAMA, 32768)


@provokes(FORM, "follow the length of each request")
def _(_: Place) -> None:
    form_of(METHODS.load("dynamic_pi")(), LLAMA, 32768)


@provokes(FORM, "rotated elements only")
def _(_: Place) -> None:
    form_of(METHODS.load("yarn")(), PHI, 32768)


@provokes(FOLDER, "a folder that is new or empty")
def _(place: Place) -> None:
    (place.folder / "a").write_text("a")
    export(subject(place.folder), place.folder)


@provokes(FOLDER, "no {WEIGHTS}")
def _(place: Place) -> None:
    weights = place.folder / "weights"
    BASE.config().save_pretrained(weights)  # type: ignore[attr-defined]
    BASE.tokenizer(None).save_pretrained(weights)
    export(subject(weights), place.folder / "out")


@provokes(FOLDER, "no readable model configuration")
def _(place: Place) -> None:
    weights = place.folder / "weights"
    BASE.initialise(0).save_pretrained(weights)
    BASE.tokenizer(None).save_pretrained(weights)
    (weights / "config.json").write_text("{")
    export(subject(weights), place.folder / "out")


def exported(place: Place, select: str = "", precision: str | None = None, **changes: Any) -> None:
    file = place.folder / "my.yaml"
    file.write_text(yaml.safe_dump({**TOY, **changes}), encoding="utf-8")
    how = Execution(home=place.folder / "home")
    out = place.folder / "out"
    export_variant(str(file), how, out, select=select, length=None, precision=precision)


@provokes(EXPORTING, "fp32 or bf16")
def _(place: Place) -> None:
    exported(place, precision="fp16")


@provokes(EXPORTING, "one variant of the study")
def _(place: Place) -> None:
    exported(place)


@provokes(EXPORTING, "not in the store")
def _(place: Place) -> None:
    exported(place, "method=yarn,seed=0,frozen=false")


@provokes(EXPORTING, "a variant of which a cell")
def _(place: Place) -> None:
    exported(place, methods=[{"name": "yarn", "checkpoint": "mine"}], seeds=[0])


@provokes("lce_core/extension/stock_rope.py", "one of {', '.join(TYPES)}")
def _(_: Place) -> None:
    stated_parameters({"rope_scaling": {"type": "su", "factor": 2.0}}, "config.json")


def planned(place: Place, entry: str = "pi", **changes: Any) -> None:
    folder = place.folder / "weights"
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(b"")
    config = {**CONFIG, **changes}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    _plan(folder, entry)


def _plan(folder: Path, entry: str = "pi") -> None:
    methods = [{"name": entry, "checkpoint": "mine"}]
    study = parse_study(yaml.safe_dump({**TOY, "methods": methods}), "my.yaml")
    compile_study(study, {}, {"mine": folder})


@provokes(PUBLISHED, "with these published weights")
def _(_: Place) -> None:
    named_folder("mine", {})


@provokes(PUBLISHED, "no named folder that holds them")
def _(place: Place) -> None:
    (place.folder / "config.json").write_text("{}")
    published_folder("0" * 64, {"mine": place.folder})


@provokes(PUBLISHED, "low-rank updates without the model")
def _(place: Place) -> None:
    (place.folder / "adapter_config.json").write_text("{}")
    _plan(place.folder)


@provokes(PUBLISHED, "no safetensors file")
def _(place: Place) -> None:
    (place.folder / "pytorch_model.bin").write_bytes(b"")
    _plan(place.folder)


@provokes(PUBLISHED, "no readable configuration")
def _(place: Place) -> None:
    (place.folder / "model.safetensors").write_bytes(b"")
    _plan(place.folder)


@provokes(PUBLISHED, "a mapping")
def _(place: Place) -> None:
    (place.folder / "model.safetensors").write_bytes(b"")
    (place.folder / "config.json").write_text("[]")
    _plan(place.folder)


@provokes(PUBLISHED, "as weights of base model")
def _(place: Place) -> None:
    planned(place, num_attention_heads=4)


@provokes(PUBLISHED, "has learned beside the model's weights")
def _(place: Place) -> None:
    planned(place, "clex")


@provokes(PUBLISHED, "the id of the token that")
def _(place: Place) -> None:
    planned(place, "landmark")


@provokes(PUBLISHED, "makes of it at")
def _(place: Place) -> None:
    planned(place, rope_scaling={"type": "yarn", "factor": 16.0})


@provokes(PUBLISHED, "which cannot be read")
def _(place: Place) -> None:
    planned(place, rope_scaling={"type": "linear"})


@provokes("lce_core/study/spec.py", "weights that are published, or")
def _(_: Place) -> None:
    methods = [{"name": "pi", "tuned": True, "checkpoint": "mine"}]
    parse_study(yaml.safe_dump({**TOY, "methods": methods}), "my.yaml")
