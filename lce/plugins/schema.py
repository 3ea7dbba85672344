"""The JSON Schema of study files, with which editors complete and check keys (`lce schema`).

The schema describes keys, types and the parameters of every plug-in. Rules across several keys are
not in the schema; `lce plan` checks them.
"""

from __future__ import annotations

from typing import Any

from lce_core.benchmarks import BENCHMARKS
from lce_core.corpora import CORPORA
from lce_core.methods import METHODS
from lce_core.models import MODELS
from lce_core.registry import Registry
from lce_core.study.spec import StudySpec
from lce_core.study.study_file import recipe_names

Schema = dict[str, Any]


def study_schema() -> Schema:
    schema = StudySpec.model_json_schema()
    parts, keys = schema["$defs"], schema["properties"]
    # An entry's `training` may omit keys that a recipe or the study's `training` provides.
    del parts["Training"]["required"]
    parts["Training"]["properties"]["recipe"] = {"enum": recipe_names()}
    of_method = _without(parts.pop("MethodEntry")["properties"], "method", "at_best")
    of_benchmark = _without(parts.pop("BenchmarkEntry")["properties"], "benchmark")
    for base in ("Corpus", "LanguageModel", "Method", "Benchmark"):
        del parts[base]  # the entries below replace these base classes
    keys["corpus"] = _entry(CORPORA, {}, parts)
    keys["base_models"]["items"] = _entry(MODELS, {}, parts)
    keys["methods"]["items"] = _entry(METHODS, of_method, parts)
    keys["benchmarks"]["items"] = _entry(BENCHMARKS, of_benchmark, parts, "lengths")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _entry(registry: Registry[Any], common: Schema, parts: Schema, *required: str) -> Schema:
    """Return the schema of a plug-in's name, or of a mapping with `name` and further keys.

    A plug-in's parameter takes precedence over a key of `common`; `required` names keys of it.
    `parts` gains the definitions of the parameters.
    """
    names, mappings = [], []
    for name in registry.names():
        plugin = registry.load(name)
        own = plugin.model_json_schema()
        parts |= own.pop("$defs", {})
        needed = [*required, *own.get("required", ())]
        if not needed:
            names.append(name)
        mappings.append(
            {
                "type": "object",
                "description": plugin.summary,
                "properties": {"name": {"const": name}, **common, **own["properties"]},
                "required": ["name", *needed],
                "additionalProperties": False,
            }
        )
    return {"oneOf": [*([{"enum": names}] if names else []), *mappings]}


def _without(properties: Schema, *keys: str) -> Schema:
    return {key: value for key, value in properties.items() if key not in keys}
