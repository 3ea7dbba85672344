"""Write the README.md (model card) of an exported model: method, frequencies, training, origin."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lce_core.registry import Source
from lce_core.store.identity import ID_DIGITS

if TYPE_CHECKING:
    from lce_core.export.stock_form import StockForm, Subject

_LICENCES = {
    "MIT": "mit",
    "Apache-2.0": "apache-2.0",
    "Gemma Terms of Use, ai.google.dev/gemma/terms": "gemma",
}
"""The hub's identifiers of licences, by `LanguageModel.licence`. The card states all other licences
as `license_name`."""


def card(subject: Subject, form: StockForm, dtype: str) -> str:
    parts = [_front_matter(subject), _head(subject), _rope(subject, form)]
    parts += [_training(subject), _lineage(subject, dtype)]
    return "\n".join(parts)


def _front_matter(subject: Subject) -> str:
    base = subject.base_model
    known = _LICENCES.get(base.licence)
    lines = ["---", "library_name: transformers", "pipeline_tag: text-generation"]
    if known:
        lines += [f"license: {known}"]
    else:
        lines += ["license: other", f"license_name: {json.dumps(base.licence)}"]
    if base.hub is not None:
        lines += [f"base_model: {base.hub.repo}"]
    lines += ["tags:", "- long-context", f"- {subject.method.plugin_name}", "---", ""]
    return "\n".join(lines)


def _head(subject: Subject) -> str:
    base, method = subject.base_model, subject.method
    name = f"{base.known_as}, {subject.variant}"
    given = method.model_dump(mode="json", exclude_defaults=True)
    parameters = "".join(f", {key} {value}" for key, value in given.items())
    return f"""# {name}

{method.summary}

| | |
|---|---|
| base model | {base.known_as} ({base.origin()}) |
| licence of the base model | {base.licence} |
| trained context of the base model | {base.geometry.trained_context} tokens |
| extended to | {subject.target_context} tokens |
| method | {method.plugin_name}, version {method.plugin_version}{parameters} |
{_source(method.source)}
| study | {subject.study}, variant {subject.variant} |

```python
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained(folder)
model = AutoModelForCausalLM.from_pretrained(folder, dtype="auto")
```
"""


def _source(source: Source) -> str:
    lines = [f"| source | {source.paper}, {source.place} |", f"| reference | {source.reference} |"]
    if source.differs:
        lines.append(f"| differs | {source.differs} |")
    return "\n".join(lines)


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
