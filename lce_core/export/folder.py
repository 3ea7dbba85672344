"""Write a model's folder that stock transformers loads: weights, configuration, tokenizer, card.

The configuration states the method twice: in `rope_parameters` for transformers 5, and in
`rope_theta` and `rope_scaling` for older programs, which would otherwise silently run the model
without the method.
"""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors.torch import load_file, save_file

from lce_core.devices import resolve_dtype
from lce_core.errors import DataError, SpecError
from lce_core.export.stock_form import StockForm, Subject, stock_form
from lce_core.extension.learned import LEARNED
from lce_core.models import LocalLayers, read_config_json
from lce_core.recipe import Precision
from lce_core.rope.stated import ORIGINAL
from lce_core.store.identity import ID_DIGITS
from lce_core.store.odd_files import follow_folder
from lce_core.store.records import sync

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

WEIGHTS = "model*.safetensors"
_INDEX = "model.safetensors.index.json"
_OLD_KEYS = (
    "rope_theta",
    "rope_scaling",
    "partial_rotary_factor",
    ORIGINAL,
    "torch_dtype",
    "auto_map",
)
"""Keys of the source's config.json that are not copied. The exported file has new values for them,
or lacks them: `auto_map`, for example, names code that is not exported."""
_LICENCES = {
    "MIT": "mit",
    "Apache-2.0": "apache-2.0",
    "Gemma Terms of Use, ai.google.dev/gemma/terms": "gemma",
}
"""The hub's identifiers of licences, by `LanguageModel.licence`. The card states all other licences
as `license_name`."""


def export(
    subject: Subject, out: Path, *, length: int | None = None, precision: Precision | None = None
) -> StockForm:
    """Write the model to folder `out`; return the `StockForm` of its method.

    `length` is as in `stock_form`. Weights keep their names and, without `precision`, their bits.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise SpecError(
            f"{out}",
            "a file or a folder that is not empty",
            "a new or empty folder",
            "name another folder, or remove this file or folder",
        )
    base_model, method = subject.base_model, subject.method
    file = subject.weights / LEARNED
    learned = file if file.is_file() else None
    form = stock_form(method, base_model, subject.target_context, length=length, learned=learned)
    out.parent.mkdir(parents=True, exist_ok=True)
    aside = out.parent / f".{out.name}-{uuid.uuid4().hex[:8]}"
    aside.mkdir()
    try:
        source = read_config_json(subject.weights)
        tokenizer = base_model.tokenizer(subject.weights)
        tokenizer.model_max_length = form.context
        tokenizer.save_pretrained(aside)
        dtype = _write_weights(subject.weights, aside, precision)
        local, text = base_model.local, source.get("text_config")
        config = _configuration(text or source, form, dtype, local)
        known = {**base_model.architecture.defaults, **config}
        slides = known.get("sliding_window") and "use_sliding_window" not in known
        if slides and local is None:
            # A window as long as the trained context may be shorter than the exported one.
            config["sliding_window"] = None
        if config.get("head_dim") is None and config.get("model_type") == "mixtral":
            # transformers multiplies Mixtral's head_dim for some rope types, although it may be
            # null.
            config["head_dim"] = base_model.geometry.head_dim
        source.pop("torch_dtype", None)
        written = {**source, "text_config": config, "dtype": dtype} if text else config
        _write_json(aside / "config.json", written)
        generation = _generation(config, subject.weights, tokenizer)
        _write_json(aside / "generation_config.json", generation)
        card = _head(subject), _rope(subject, form), _training(subject), _lineage(subject, dtype)
        (aside / "README.md").write_text("\n".join(card), encoding="utf-8")
        follow_folder(aside)
        for file in sorted(aside.iterdir()):
            sync(file)
        if out.exists():
            out.rmdir()
        aside.rename(out)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return form


def _write_weights(source: Path, out: Path, precision: Precision | None) -> str:
    """Copy or cast the safetensors of `source`; return the dtype to state in config.json."""
    files = sorted(file for file in source.glob(WEIGHTS) if file.is_file())
    if not files:
        raise DataError(
            source,
            f"no file {WEIGHTS}",
            "a folder with a model's weights as safetensors",
            "name the folder that contains such files",
        )
    total, dtypes = 0, set()
    for file in files:
        tensors = load_file(file)
        if precision is None:
            shutil.copyfile(file, out / file.name)
        else:
            tensors = {name: t.to(resolve_dtype(precision)) for name, t in tensors.items()}
            save_file(tensors, out / file.name, metadata={"format": "pt"})
        total += sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
        dtypes |= {str(tensor.dtype).removeprefix("torch.") for tensor in tensors.values()}
    if (source / _INDEX).is_file():
        index = json.loads((source / _INDEX).read_text(encoding="utf-8"))
        index["metadata"] = {**index.get("metadata", {}), "total_size": total}
        _write_json(out / _INDEX, index)
    return dtypes.pop() if len(dtypes) == 1 else "float32"


def _configuration(
    source: Mapping[str, Any], form: StockForm, dtype: str, local: LocalLayers | None
) -> dict[str, Any]:
    stated = dict(form.rope_parameters)
    # MLX reads the share of `proportional` only in rope_scaling.
    older = {key: stated[key] for key in stated if key != "rope_theta"}
    config = {key: value for key, value in source.items() if key not in _OLD_KEYS}
    # Older releases expect these keys of `rope_parameters` at the top level.
    config |= {key: stated[key] for key in ("rope_theta", "partial_rotary_factor") if key in stated}
    if stated["rope_type"] == "llama3" or (
        config.get("model_type") == "phi3" and ORIGINAL in stated
    ):
        # llama.cpp's converter reads this key only here; without it, it assumes 8,192 tokens.
        # transformers would take Phi-3's default, 4,096.
        config[ORIGINAL] = stated[ORIGINAL]
    config["rope_parameters"] = stated
    if local is not None and local.theta is not None:
        plain = {"rope_type": "default", "rope_theta": local.theta}
        config["rope_parameters"] = {"full_attention": stated, "sliding_attention": plain}
    config["rope_scaling"] = None if stated["rope_type"] == "default" else older
    config["max_position_embeddings"] = form.context
    config["dtype"] = dtype
    config["use_cache"] = True
    return config


def _generation(
    config: Mapping[str, Any], weights: Path, tokenizer: PreTrainedTokenizerBase
) -> dict[str, Any]:
    """Return the content of generation_config.json: greedy decoding, and ids of special tokens."""
    ids = {
        key: getattr(tokenizer, key) if config.get(key) is None else config[key]
        for key in ("bos_token_id", "eos_token_id", "pad_token_id")
    }
    with suppress(OSError, ValueError, AttributeError):
        source = json.loads((weights / "generation_config.json").read_text(encoding="utf-8"))
        if (ends := source.get("eos_token_id")) is not None:
            ids["eos_token_id"] = ends
    if ids["pad_token_id"] is None:
        # Without a padding token `generate` would print a warning for every batch.
        end = ids["eos_token_id"]
        ids["pad_token_id"] = end[0] if isinstance(end, list) else end
    known = {key: value for key, value in ids.items() if value is not None}
    return {**known, "do_sample": False, "use_cache": True}


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def _head(subject: Subject) -> str:
    base, method = subject.base_model, subject.method
    given = method.model_dump(mode="json", exclude_defaults=True)
    parameters = "".join(f", {key} {value}" for key, value in given.items())
    licence = _LICENCES.get(base.licence, f"other\nlicense_name: {json.dumps(base.licence)}")
    hub = "" if base.hub is None else f"\nbase_model: {base.hub.repo}"
    source = method.source
    differs = f"\n| differs | {source.differs} |" if source.differs else ""
    return f"""---
library_name: transformers
pipeline_tag: text-generation
license: {licence}{hub}
tags:
- long-context
- {method.plugin_name}
---

# {base.known_as}, {subject.variant}

{method.summary}

| | |
|---|---|
| base model | {base.known_as} ({base.origin()}) |
| licence of the base model | {base.licence} |
| trained context of the base model | {base.geometry.trained_context} tokens |
| extended to | {subject.target_context} tokens |
| method | {method.plugin_name}, version {method.plugin_version}{parameters} |
| source | {source.paper}, {source.place} |
| reference | {source.reference} |{differs}
| study | {subject.study}, variant {subject.variant} |

```python
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained(folder)
model = AutoModelForCausalLM.from_pretrained(folder, dtype="auto")
```
"""


def _rope(subject: Subject, form: StockForm) -> str:
    stated = dict(form.rope_parameters)
    for key in ("short_factor", "long_factor"):
        if key in stated:
            stated[key] = f"{len(stated[key])} numbers"
    name = subject.method.plugin_name
    if form.only_at is not None:
        scope = (
            f"The frequencies of {name} depend on the length of the request. This folder has the"
            f" frequencies for requests of {form.only_at} tokens, prompt and answer together. At"
            " other lengths this model differs from the one that the study evaluated."
        )
    elif form.follows_up_to is not None:
        scope = (
            f"The frequencies equal the method's for requests of up to {form.follows_up_to} tokens."
            " For longer requests the study's frequencies depend on the length; these do not."
        )
    else:
        scope = "The frequencies equal the method's at every length."
    return f"""## Rotary embedding

`config.json` states the method as `{json.dumps(stated)}`, in `rope_parameters` and in the
keys that older programs read. The folder contains no code. {scope}
"""


def _training(subject: Subject) -> str:
    record = subject.training
    if record is None or record.kind == "base":
        how = "The weights are the base model's own. They were not trained for the longer context."
        return f"## Training\n\n{how}\n"
    spec = record.spec
    facts: dict[str, Any] = {
        "method": ", ".join(f"{key} {value}" for key, value in spec["method"].items()),
        "steps": spec["num_steps"],
        "tokens per training row": spec["row_length"],
        "seed": spec["seed"],
        **spec["training"],
        **record.result.get("chosen", {}),
    }
    for key in ("tokens", "loss", "kernel", "device"):
        if key in record.result:
            facts[f"{key} (as run)"] = record.result[key]
    return f"## Training\n\nThe table omits settings with default values.\n\n{_table(facts)}"


def _lineage(subject: Subject, dtype: str) -> str:
    facts: dict[str, Any] = {"dtype": dtype}
    record = subject.training
    if record is not None:
        facts[f"{record.kind} step"] = record.fingerprint
        for role, parent in record.parents.items():
            facts[f"input step: {role}"] = parent[:ID_DIGITS]
        facts["commit of lce"] = str(record.environment.get("git", {}).get("commit"))
        libraries = record.environment.get("libraries", {})
        facts["trained with"] = ", ".join(
            f"{name} {libraries[name]}" for name in ("torch", "transformers") if name in libraries
        )
    if subject.digest is not None:
        facts["sha256 of the folder of weights"] = subject.digest
    return f"## Lineage\n\n{_table(facts)}"


def _table(facts: Mapping[str, Any]) -> str:
    rows = "\n".join(f"| {key} | {value} |" for key, value in facts.items())
    return f"| | |\n|---|---|\n{rows}\n"
