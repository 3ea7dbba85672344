"""Provocations of base models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from lce_core.models import MODELS
from lce_core.models._gguf import convert
from lce_core.models._stock import check_config
from lce_core.models._weights_digest import weights_digest
from lce_core.models._wheels import extract
from lce_core.models._whole_weights import require_whole
from lce_core.models.hub_model.facts import read_facts
from tests.support.architectures import save
from tests.support.data.packaged_models import (
    MEMBER,
    TinyPackaged,
    pinned,
    serve,
    write_gguf,
    write_wheel,
)
from tests.support.errors.provocations import Place, Table
from tests.support.training_jobs import BASE

PROVOCATIONS = Table()
provokes = PROVOCATIONS


@provokes("lce_core/models/_whole_weights.py", "a whole safetensors file")
def _(place: Place) -> None:
    (place.folder / "model.safetensors").write_bytes(b"")
    require_whole(place.folder)


@provokes("lce_core/models/_whole_weights.py", "the file of each tensor")
def _(place: Place) -> None:
    (place.folder / "model.safetensors.index.json").write_text("[]")
    require_whole(place.folder)


LLAMA = MODELS.parse({"name": "llama2_7b"}, "base_models[0]")


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


@provokes("lce_core/models/_stock.py", "weights that are missing")
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


@provokes("lce_core/models/__init__.py", "a model that the study trains itself")
def _(place: Place) -> None:
    BASE.fetch(place.folder)


@provokes("lce_core/models/_packaged.py", "a model that was not fetched yet")
def _(_: Place) -> None:
    TinyPackaged().load(None, None)


def described(place: Place, text: str) -> Any:
    """What `hub_model` reads of a config.json."""
    (place.folder / "config.json").write_text(text, encoding="utf-8")
    return read_facts(place.folder / "config.json")


@provokes("lce_core/models/hub_model/facts.py", "no readable configuration")
def _(place: Place) -> None:
    described(place, "{")


@provokes("lce_core/models/hub_model/facts.py", "a JSON value of type")
def _(place: Place) -> None:
    described(place, "[]")


@provokes("lce_core/models/hub_model/facts.py", "as config.json of every such model has it")
def _(place: Place) -> None:
    described(place, '{"model_type": "llama"}')


@provokes("lce_core/models/hub_model/facts.py", "a model that methods can be put on")
def _(place: Place) -> None:
    described(place, '{"model_type": "gpt2"}')


@provokes("lce_core/models/hub_model/__init__.py", "{facts.model_type}, as base model", slow=True)
def _(place: Place) -> None:
    from tests.support.architectures import hub_model, random_model

    for model_type in ("mistral", "qwen3"):
        random_model(model_type).save_pretrained(place.folder / model_type)
    hub_model(place.folder / "mistral").load_published(place.folder / "qwen3", torch.float32)


def asked(says: str, **entry: Any) -> None:
    """Registers an entry of a study that is no model."""
    provokes("lce_core/models/hub_model/__init__.py", says)(
        lambda _: MODELS.parse({"name": "hub_model", **entry}, "base_models[0]")
    )


asked("a branch or tag may change", repo="a/b", revision="main")
asked("a repository and its commit together", repo="a/b")
asked("neither a label nor a repository")
MINE = MODELS.parse({"name": "hub_model", "label": "mine"}, "base_models[0]")


@provokes("lce_core/models/hub_model/__init__.py", "facts that are read from config.json alone")
def _(place: Place) -> None:
    LLAMA.config().save_pretrained(place.folder)  # type: ignore[attr-defined]
    MINE.resolved(place.folder).resolved(place.folder)


@provokes("lce_core/models/hub_model/__init__.py", "as when the study was planned")
def _(place: Place) -> None:
    planned = MINE.resolved(saved(place))
    file = place.folder / "config.json"
    file.write_text(file.read_text(encoding="utf-8").replace("11008", "11009"), encoding="utf-8")
    planned.load(place.folder, None)


@provokes("lce_core/models/hub_model/__init__.py", "ids below the model's vocabulary")
def _(place: Place) -> None:
    beyond = BASE.tokenizer(None)
    beyond.add_special_tokens({"eos_token": "</s>"})
    folder = save("llama", place.folder, beyond)
    MINE.resolved(folder).tokenizer(folder)


@provokes("lce_core/models/hub_model/__init__.py", "a folder without config.json")
def _(place: Place) -> None:
    MINE.resolved(place.folder)


@provokes("lce_core/models/hub_model/__init__.py", "neither a folder nor a repository")
def _(_: Place) -> None:
    MINE.resolved(None)


@provokes("lce_core/models/hub_model/__init__.py", "its config.json in the hub cache")
def _(_: Place) -> None:
    entry = {"name": "hub_model", "repo": "a/b", "revision": "0" * 40}
    MODELS.parse(entry, "base_models[0]").resolved(None)


def converted(place: Place, kept: int | None = None, **changes: object) -> None:
    """Converts a tiny model of which only the first bytes are kept."""
    file = place.folder / "tiny.gguf"
    write_gguf(file, **changes)
    file.write_bytes(file.read_bytes()[:kept])
    convert(file, TinyPackaged(), place.folder)


@provokes("lce_core/models/_gguf.py", "no readable GGUF")
def _(place: Place) -> None:
    converted(place, 100)


@provokes("lce_core/models/_gguf.py", "or write a base model plug-in")
def _(place: Place) -> None:
    converted(place, architecture="qwen2")


@provokes("lce_core/models/_gguf.py", "the tensor {")
def _(place: Place) -> None:
    converted(place, foreign="rope_freqs.weight")


@provokes("lce_core/models/_gguf.py", "no key")
def _(place: Place) -> None:
    converted(place, context_length=None)


@provokes("lce_core/models/_gguf.py", "or name another file")
def _(place: Place) -> None:
    converted(place, lacking=True)


def extracted(place: Place, sha256: str = "", member: str = MEMBER) -> None:
    """Takes a file out of a wheel of the folder, pinned with another hash if one is given."""
    (place.folder / "content").touch()
    right = write_wheel(place.folder, place.folder / "content")
    serve(place.folder, place.patch)
    (place.folder / "into").mkdir()
    extract(pinned(sha256 or right, member), place.folder / "into", quiet=True)


@provokes("lce_core/models/_wheels.py", "a wheel with another sha256")
def _(place: Place) -> None:
    extracted(place, "0" * 64)


@provokes("lce_core/models/_wheels.py", "the wheel that the plug-in was written for")
def _(place: Place) -> None:
    extracted(place, member="other")


@provokes("lce_core/models/_wheels.py", "no wheel from the package index")
def _(place: Place) -> None:
    serve(place.folder, place.patch)
    extract(pinned("0" * 64), place.folder, quiet=True)
