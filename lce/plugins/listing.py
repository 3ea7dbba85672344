"""Tables, JSON, Markdown pages and a JSON Schema of what a study can use, from the plug-ins."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from flows.terminal import Terminal, plain_table, say
from lce_core.benchmarks import BENCHMARKS, Benchmark, TextBenchmark
from lce_core.corpora import CORPORA
from lce_core.errors import SpecError
from lce_core.export.stock_form import StockForm, stock_form
from lce_core.methods import METHODS, Method
from lce_core.models import MODELS, LanguageModel
from lce_core.registry import Plugin, Registry
from lce_core.study import cost
from lce_core.study.spec import StudySpec
from lce_core.study.study_file import Recipe, load_recipe, recipe_names

_METHODS_HEAD = """# Methods

Generated from the files in `lce_core/methods`. An entry of a study's `methods` has the method's
name as `name`, and its parameters as further keys. Tables of papers in the catalog use the same
names. Lengths are in tokens.

Costs are computed for Llama-2-7B, extended from 4,096 to 32,768 tokens, with default parameters:

- *prompt at 2x, 4x, 8x*: attention FLOPs of a prompt of 8,192, 16,384 and 32,768 tokens, as a share
  of those of full causal attention. At 32,768 tokens full attention is {share:.0%} of all FLOPs.
- *training*: the same for training rows of 32,768 tokens; "-" for methods that are not trained.
- *new token*: share of the 32,768 cached keys that a generated token reads.
- *cache*: tokens in the key-value cache per token of text. Keys that no query reads stay in it.
- *export*: `rope_type` with which unmodified transformers computes the method, or the reason why
  `lce export` refuses ([all parameters](exports.md)).
"""

_BENCHMARKS_HEAD = """# Benchmarks

Generated from the files in `lce_core/benchmarks`. An entry of a study's `benchmarks` has the
benchmark's name as `name`, and its parameters as further keys. `profile` selects a version of the
benchmark: `faithful` repeats the papers, `clean` corrects known faults of their measurement, `fast`
measures the same quantity with far fewer tokens, `tiny` is for toy models. The column of tokens
contains the number of tokens that a model processes for all tasks at one length, with the profile's
defaults and 1,048,576 tokens of held-out text per domain.
"""
_RECIPES_HEAD = """# Training recipes

Generated from the files in `lce_core/recipes`. A recipe is a named set of published training
settings. `training: {recipe: NAME}` in a study, or in an entry of `methods`, uses these values;
further keys override single values. "but:" precedes a source that contradicts the value.
"""
Texts = tuple[Sequence[str], Sequence[Sequence[str]]]
_Schema = dict[str, Any]
_EXPORT_TARGET = 32768
_COST_LENGTH = 4096
_COST_HELD_OUT = 1 << 20


def show(kind: str, form: str) -> None:
    """Print all plug-ins of a kind as a table, as "json", or as one of the pages `PAGES`."""
    if page := PAGES.get((kind, form)):
        say(page(), end="")
        return
    columns, rows = TABLES[kind]()
    if form == "json":
        keys = [column.replace(" ", "_") for column in columns]
        say(json.dumps([dict(zip(keys, row, strict=True)) for row in rows], indent=1))
        return
    table = plain_table(columns)
    for row in rows:
        table.add_row(*row)
    Terminal().print(table)


def _loaded(registry: Registry[Any]) -> dict[str, Any]:
    return {name: registry.load(name) for name in registry.names()}


def _methods() -> Texts:
    rows = [(name, *properties(one), one.source.paper) for name, one in _loaded(METHODS).items()]
    return ("method", "family", "attention", "trains", "source"), rows


def _benchmarks() -> Texts:
    rows = []
    for name, one in _loaded(BENCHMARKS).items():
        samples = "by seed" if one.seeded else "fixed"
        rows.append((name, one.unit, one.default_metric, samples, one.source.paper))
    return ("benchmark", "unit", "metric", "samples", "source"), rows


def _models() -> Texts:
    rows = []
    for name, model in _loaded(MODELS).items():
        sizes = ("its own",) * 3
        if not model.reads_config:
            geometry = model.geometry
            rotary = f"{geometry.rotary_dim} of {geometry.head_dim}"
            sizes = (str(geometry.trained_context), f"{geometry.theta:g}", rotary)
        rows.append((name, *sizes, model.origin(), model.licence))
    return ("base model", "context", "theta", "rotary", "weights", "licence"), rows


def _corpora() -> Texts:
    loaded = _loaded(CORPORA).items()
    rows = [(name, one.summary, ", ".join(one.model_fields)) for name, one in loaded]
    return ("corpus", "text", "parameters"), rows


def _recipes() -> Texts:
    keys = ("learning_rate", "tokens_per_step", "train_tokens", "schedule")
    rows = []
    for name in recipe_names():
        recipe = load_recipe(name)
        known = {key.removeprefix("training."): str(fact.value) for key, fact in recipe.facts()}
        rows.append((name, *(known.get(key, "-") for key in keys), recipe.about))
    return ("recipe", "learning rate", "tokens a step", "tokens", "schedule", "whose"), rows


def methods_markdown() -> str:
    loaded = _loaded(METHODS)
    model = MODELS.load("llama2_7b")()
    full = cost.evaluation_cost(
        model, METHODS.load("none")(), _EXPORT_TARGET, 1, _EXPORT_TARGET
    ).flops
    attention = cost.attention_flops(model.shape, model.geometry, _EXPORT_TARGET / 2)
    costs = ("prompt at 2x", "4x", "8x", "training", "new token", "cache")
    columns = ("method", "family", "attention", "trains", *costs, "export", "paper")
    rows = [
        (f"[`{name}`](#{name})", *properties(one), *_costs(one, model), one.source.paper)
        for name, one in loaded.items()
    ]
    table = _table(columns, rows, f"|---|---|---|---|{'--:|' * len(costs)}---|---|")
    sections = [_method(name, method) for name, method in loaded.items()]
    head = _METHODS_HEAD.format(share=attention / full)
    return "\n".join([head, *table, "", "\n\n".join(sections), ""])


def _costs(plugin: type[Method], model: LanguageModel) -> Iterator[str]:
    given = any(field.is_required() for field in plugin.model_fields.values())
    method = METHODS.parse(
        {"name": plugin.plugin_name, **(plugin.examples[0] if given else {})}, "EXAMPLES"
    )
    target, trained = _EXPORT_TARGET, model.geometry.trained_context
    for times in (2, 4, 8):
        yield f"{cost.relative_attention(model, method, target, times * trained):.2f}"
    training = "-"
    if method.training != "none":
        training = f"{cost.relative_attention(model, method, target, target, training=True):.2f}"
    yield training
    yield f"{cost.keys_of_last(model, method, target, target) / target:.2f}"
    yield f"{cost.cached_tokens(model, method):.2f}"
    shown = "depends on its parameters" if given else _exported(method, model)
    yield shown.partition(",")[0] if shown.startswith("`") else shown


def _method(name: str, method: type[Method]) -> str:
    family, attention, trains = properties(method)
    about = f"- family: {family}; attention: {attention}; trains: {trains}"
    lines = [f"## `{name}`", "", method.summary, "", about]
    return "\n".join([*lines, *_source(method), *_parameters(method)])


def benchmarks_markdown() -> str:
    loaded, rows = _loaded(BENCHMARKS), []
    for name, one in loaded.items():
        link, profiles = f"[`{name}`](#{name})", ", ".join(one.profiles)
        rows.append((link, one.unit, one.default_metric, profiles, one.source.paper))
    table = _table(("benchmark", "unit", "metric", "profiles", "paper"), rows)
    sections = [_benchmark(name, one) for name, one in loaded.items()]
    return "\n".join([_BENCHMARKS_HEAD, *table, "", "\n\n".join(sections), ""])


def _benchmark(name: str, benchmark: type[Benchmark]) -> str:
    lines = [f"## `{name}`", "", benchmark.summary, "", *_source(benchmark)]
    samples = "drawn from the study's seed" if benchmark.seeded else "the same for every seed"
    lines += [f"- samples: {samples}", f"- length: {_length(benchmark)}"]
    for data in benchmark.all_data_sets().values():
        only = "; only if a parameter selects it" if data in benchmark.data_on_demand else ""
        lines.append(f"- data set `{data.name}`: {data.origin}{only}")
    rows = []
    for profile, about in benchmark.profiles.items():
        one = benchmark.model_validate({"profile": profile})
        tokens = sum(one.num_tokens(t, _COST_LENGTH, _COST_HELD_OUT) for t in one.tasks())
        rows.append((f"`{profile}`", about.summary, f"{tokens:,}"))
    table = _table(("profile", "what it does", f"tokens at {_COST_LENGTH:,}"), rows)
    return "\n".join([*lines, "", *table, *_parameters(benchmark)])


def _length(benchmark: type[Benchmark]) -> str:
    if issubclass(benchmark, TextBenchmark):
        return "number of tokens in a text window"
    if benchmark.fills_length:
        return "prompt and answer fill it; a cell whose prompts are too short is unavailable"
    return "maximum length of a prompt; the data or the task determine the actual length"


def recipes_markdown() -> str:
    sections = [_recipe(name, load_recipe(name)) for name in recipe_names()]
    return "\n".join([_RECIPES_HEAD, "\n\n".join(sections), ""])


def _recipe(name: str, recipe: Recipe) -> str:
    rows = []
    for key, fact in recipe.facts():
        value = f"{fact.value:,}" if isinstance(fact.value, int) else str(fact.value)
        but = f"; but: {fact.against}" if fact.against else ""
        rows.append((f"`{key}`", value, f"{fact.source}{but}"))
    table = _table(("field", "value", "source"), rows)
    lines = [f"## `{name}`", "", f"{recipe.about}.", "", *table]
    if recipe.not_given:
        lines += ["", *(f"- not given, {key}: {why}" for key, why in recipe.not_given.items())]
    return "\n".join(lines)


def _source(plugin: type[Plugin]) -> Iterator[str]:
    source = plugin.source
    yield f"- source: {source.paper}, {source.place}"
    yield f"- reference: {source.reference}"
    if source.differs:
        yield f"- differs: {source.differs}"


def _parameters(plugin: type[Plugin]) -> list[str]:
    fields = {key: field for key, field in plugin.model_fields.items() if key != "profile"}
    if not fields:
        return ["- parameters: none"] if "profile" not in plugin.model_fields else []
    rows = []
    for key, field in fields.items():
        default = "required" if field.is_required() else str(field.default).lower()
        meaning = " ".join((field.description or "").split()).replace("|", r"\|")
        rows.append((f"`{key}`", default, meaning))
    return ["", *_table(("parameter", "default", "meaning"), rows)]


def _table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], rule: str | None = None
) -> list[str]:
    """Return the lines of a Markdown table; `rule` aligns the columns, by default to the left."""
    lines = [f"| {' | '.join(row)} |" for row in (columns, *rows)]
    return [lines[0], rule or f"|{'---|' * len(columns)}", *lines[1:]]


def properties(method: type[Method]) -> tuple[str, str, str]:
    attention = "exact" if method.exact_attention else "approximate"
    trains = {"none": "no", "optional": "yes", "required": "always"}[method.training]
    return method.family, attention, trains


def exports_table() -> str:
    models = [MODELS.load(name)() for name in ("llama2_7b", "phi2")]
    titles = [f"{model.plugin_name}, to {_EXPORT_TARGET:,} tokens" for model in models]
    rows = []
    for name, method in _loaded(METHODS).items():
        if any(field.is_required() for field in method.model_fields.values()):
            cells = ["depends on its required parameters"] * len(models)
        else:
            cells = [_exported(method(), model) for model in models]
        rows.append((name, *cells))
    return "\n".join(_table(("method", *titles), rows)) + "\n"


def _exported(method: Method, model: LanguageModel) -> str:
    try:
        return _form(stock_form(method, model, _EXPORT_TARGET))
    except SpecError as error:
        refused = f"refused: {error.got}"
        asks_length = "--length" in error.remedy
    if not asks_length:
        return refused
    try:
        form = stock_form(method, model, _EXPORT_TARGET, length=_EXPORT_TARGET)
    except SpecError as error:
        return f"refused: {error.got}"
    return f"{refused}; with `--length {_EXPORT_TARGET}` {_form(form)}"


def _form(form: StockForm) -> str:
    stated = form.rope_parameters
    shown = ", ".join(
        f"`{key}` {stated[key]:.6g}"
        for key in ("rope_theta", "factor", "partial_rotary_factor")
        if key in stated
    )
    pairs = f", {len(stated['long_factor'])} divisors" if "long_factor" in stated else ""
    only = form.only_at is None and form.follows_up_to is not None
    return f"`{stated['rope_type']}`, {shown}{pairs}" + ", up to the target" * only


def study_schema() -> _Schema:
    """Return the JSON Schema of study files, without the rules across several keys."""
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


def _entry(registry: Registry[Any], common: _Schema, parts: _Schema, *required: str) -> _Schema:
    """Return the schema of a plug-in's name, or of a mapping with `name` and further keys.

    A plug-in's parameter takes precedence over a key of `common`; `required` names keys of it.
    `parts` gains the definitions of the parameters.
    """
    names, mappings = [], []
    for name, plugin in _loaded(registry).items():
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


def _without(properties: _Schema, *keys: str) -> _Schema:
    return {key: value for key, value in properties.items() if key not in keys}


TABLES: dict[str, Callable[[], Texts]] = {
    "methods": _methods,
    "benchmarks": _benchmarks,
    "models": _models,
    "corpora": _corpora,
    "recipes": _recipes,
}
PAGES: dict[tuple[str, str], Callable[[], str]] = {
    ("methods", "markdown"): methods_markdown,
    ("methods", "exports"): exports_table,
    ("benchmarks", "markdown"): benchmarks_markdown,
    ("recipes", "markdown"): recipes_markdown,
}
