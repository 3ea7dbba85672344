"""`lce methods`, `benchmarks`, `models`, `corpora`, `recipes`: tables of what a study can use."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from flows.terminal import Terminal, plain_table, say
from lce.plugins.documents import properties
from lce_core.benchmarks import BENCHMARKS
from lce_core.corpora import CORPORA
from lce_core.methods import METHODS
from lce_core.models import MODELS
from lce_core.study.study_file import load_recipe, recipe_names


def methods(*, as_json: bool = False) -> None:
    """Print every method with family, attention, training and source."""
    loaded = [(name, METHODS.load(name)) for name in METHODS.names()]
    rows = ((name, *properties(one), one.source.paper) for name, one in loaded)
    _print(("method", "family", "attention", "trains", "source"), rows, as_json)


def benchmarks(*, as_json: bool = False) -> None:
    """Print every benchmark with unit, metric, seeding and source."""
    rows = (
        (
            name,
            one.unit,
            one.default_metric,
            "by seed" if one.seeded else "fixed",
            one.source.paper,
        )
        for name, one in ((name, BENCHMARKS.load(name)) for name in BENCHMARKS.names())
    )
    _print(("benchmark", "unit", "metric", "samples", "source"), rows, as_json)


def models(*, as_json: bool = False) -> None:
    """Print every base model with context, RoPE base, rotary size, origin and licence."""
    rows = []
    for name in MODELS.names():
        model = MODELS.load(name)
        if model.reads_config:
            sizes = ("its own",) * 3
        else:
            geometry = model.geometry
            rotary = f"{geometry.rotary_dim} of {geometry.head_dim}"
            sizes = (str(geometry.trained_context), f"{geometry.theta:g}", rotary)
        rows.append((name, *sizes, model.origin(), model.licence))
    _print(("base model", "context", "theta", "rotary", "weights", "licence"), rows, as_json)


def corpora(*, as_json: bool = False) -> None:
    """Print every text source with the text that it reads and its parameters."""
    loaded = [(name, CORPORA.load(name)) for name in CORPORA.names()]
    rows = ((name, one.summary, ", ".join(one.model_fields)) for name, one in loaded)
    _print(("corpus", "text", "parameters"), rows, as_json)


def recipes(*, as_json: bool = False) -> None:
    """Print every training recipe with its main values and its authors."""
    keys = ("learning_rate", "tokens_per_step", "train_tokens", "schedule")
    rows = []
    for name in recipe_names():
        recipe = load_recipe(name)
        known = {key.removeprefix("training."): str(fact.value) for key, fact in recipe.facts()}
        rows.append((name, *(known.get(key, "-") for key in keys), recipe.about))
    _print(
        ("recipe", "learning rate", "tokens a step", "tokens", "schedule", "whose"),
        rows,
        as_json,
    )


def _print(columns: Sequence[str], rows: Iterable[Sequence[str]], as_json: bool) -> None:
    """Print rows of texts as a table, or as a JSON list of objects."""
    if as_json:
        keys = [column.replace(" ", "_") for column in columns]
        say(json.dumps([dict(zip(keys, row, strict=True)) for row in rows], indent=1))
        return
    table = plain_table(columns)
    for row in rows:
        table.add_row(*row)
    Terminal().print(table)
