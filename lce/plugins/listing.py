"""`lce methods`, `benchmarks`, `models` and `recipes`: tables of what a study can use."""

from __future__ import annotations

from flows.terminal import Terminal, plain_table
from lce.plugins.documents import properties
from lce_core.benchmarks import BENCHMARKS
from lce_core.methods import METHODS
from lce_core.models import MODELS
from lce_core.study.recipes import load_recipe, recipe_names


def methods() -> None:
    """Print every method with family, attention, training and source."""
    table = plain_table(("method", "family", "attention", "trains", "source"))
    for name in METHODS.names():
        method = METHODS.load(name)
        table.add_row(name, *properties(method), method.source.paper)
    Terminal().print(table)


def benchmarks() -> None:
    """Print every benchmark with unit, metric, seeding and source."""
    table = plain_table(("benchmark", "unit", "metric", "samples", "source"))
    for name in BENCHMARKS.names():
        benchmark = BENCHMARKS.load(name)
        samples = "by seed" if benchmark.seeded else "fixed"
        paper = benchmark.source.paper
        table.add_row(name, benchmark.unit, benchmark.default_metric, samples, paper)
    Terminal().print(table)


def models() -> None:
    """Print every base model with context, RoPE base, rotary size, origin and licence."""
    table = plain_table(("base model", "context", "theta", "rotary", "weights", "licence"))
    for name in MODELS.names():
        model = MODELS.load(name)
        if model.reads_config:
            table.add_row(name, *["its own"] * 3, model.origin(), model.licence)
            continue
        geometry = model.geometry
        rotary = f"{geometry.rotary_dim} of {geometry.head_dim}"
        context = str(geometry.trained_context)
        table.add_row(name, context, f"{geometry.theta:g}", rotary, model.origin(), model.licence)
    Terminal().print(table)


def recipes() -> None:
    """Print every training recipe with its main values and its authors."""
    table = plain_table(("recipe", "learning rate", "tokens a step", "tokens", "schedule", "whose"))
    for name in recipe_names():
        recipe = load_recipe(name)
        known = {key.removeprefix("training."): str(fact.value) for key, fact in recipe.facts()}
        keys = ("learning_rate", "tokens_per_step", "train_tokens", "schedule")
        table.add_row(name, *(known.get(key, "-") for key in keys), recipe.about)
    Terminal().print(table)
