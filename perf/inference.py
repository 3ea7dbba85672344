"""Measure the error rates of the catalog's comparisons on simulated studies.

The studies go through `paired_differences`, the function that fills the catalog, so that clusters,
families and corrections are part of the measurement. The tables are those of docs/statistics.md:

- null studies, in which all methods have the same expected score: share of studies with at least
  one significant difference among all pairs, registered as one entry of `expects` (limit 6 %);
- power: documents that few studies could decide before, and seeds.
"""

from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np
from measuring import Row, measure
from numpy.typing import NDArray

from catalog.comparisons.families import paired_differences
from catalog.comparisons.pairs import PRIMARY, Predicted, Prediction
from catalog.comparisons.samples import Cell, SampleScores
from lce_core.kinds import CONTROLS

Numbers = NDArray[np.float64]
Draw = Callable[[np.random.Generator], list[Cell]]
"""Draws the cells of one study."""
NUM_PROMPTS = 40


def rows(options: Namespace) -> Iterator[Row]:
    for label, draw in null_studies():
        found = rate(draw, any_difference, options.studies)
        yield {"null study": label, "false differences": found}
    for label, draw in decidable_studies():
        yield {"study": label, "power": rate(draw, extremes_differ, options.studies)}


def rate(draw: Draw, is_found: Callable[[list[Cell]], bool], num_studies: int) -> str:
    rng = np.random.default_rng(0)
    return f"{100 * np.mean([is_found(draw(rng)) for _ in range(num_studies)]):.1f} %"


def registered(cells: list[Cell]) -> list[dict[str, Any]]:
    """Return the differences of all pairs of methods, registered as one entry of `expects`."""
    methods = dict.fromkeys(one.method for one in cells)
    predicted: Predicted = {
        ("study", "model", "benchmark", 1024, None, frozenset(pair)): Prediction(PRIMARY)
        for pair in combinations(methods, 2)
    }
    return [row for row in paired_differences(cells, predicted) if row["family"] == PRIMARY]


def any_difference(cells: list[Cell]) -> bool:
    return any(row["p_adjusted"] <= 0.05 for row in registered(cells))


def extremes_differ(cells: list[Cell]) -> bool:
    """Return True if the last method is found to differ from the first, of all pairs."""
    ends = {cells[0].method[0], cells[-1].method[0]}
    pairs = [one for one in registered(cells) if {one["method"], one["other_method"]} == ends]
    return bool(pairs[0]["p_adjusted"] <= 0.05)


# Cells and studies


def cell(
    method: int,
    seed: int,
    scores: Numbers,
    *,
    seeded: bool = False,
    clusters: Iterable[int] | None = None,
) -> Cell:
    """Return a cell of one trained method; method 0 is the frozen base model with one run."""
    names = np.array([None] * len(scores) if clusters is None else list(clusters), dtype=object)
    controls = dict.fromkeys(CONTROLS, np.full(len(scores), np.nan))
    return Cell(
        name=f"{method}-{seed}",
        checkpoint="base" if method == 0 else f"{method}-{seed}",
        study="study",
        base_model="model",
        method=(f"method {method}" if method else "none", method == 0),
        exact_attention=True,
        seed=seed,
        benchmark="benchmark",
        task="task",
        profile=None,
        eval_length=1024,
        trained_context=512,
        metric="score",
        value=float(scores.mean()),
        unit="nats",
        higher_is_better=True,
        seeded=seeded,
        scored=SampleScores(np.arange(len(scores)), scores, names, controls),
        method_family=None,
        aggregation="mean",
    )


def trained_study(
    rng: np.random.Generator,
    *,
    deviations: Numbers,
    seeded: bool = False,
    num_seeds: int = 3,
    runs: Sequence[int] | None = None,
) -> list[Cell]:
    """Draw a study of tuned methods and the base model, all with the expected score 0.

    `deviations` (methods,) are standard deviations between training seeds, in standard errors of a
    mean over prompts; the base model, method 0, has one training run. With `seeded`, each seed has
    its own prompts. `runs` has the number of the training run that each method evaluates, by
    default its own; methods of one run share its deviation and add half as much of their own.
    """
    num_methods = len(deviations)

    def prompts() -> tuple[Numbers, Numbers]:
        return rng.normal(size=NUM_PROMPTS), rng.normal(size=(num_methods, NUM_PROMPTS)) * 0.7

    error = 1 / np.sqrt(NUM_PROMPTS)
    hard, own = prompts()
    cells = []
    for seed in range(num_seeds):
        if seeded:
            hard, own = prompts()
        of_seed = rng.normal() * deviations[-1] * error
        of_run = rng.normal(size=num_methods) if runs else np.zeros(num_methods)
        for method in range(num_methods):
            scores = hard + own[method]
            if method:
                own_run = rng.normal() if not runs else of_run[runs[method]] + rng.normal() / 2
                run = of_seed + own_run * deviations[method] * error
                scores = scores + run + 0.7 * rng.normal(size=NUM_PROMPTS)
            drawn = cell(method, seed, scores, seeded=seeded)
            if runs and method:
                drawn = replace(drawn, checkpoint=f"run {runs[method]}-{seed}")
            cells.append(drawn)
    return cells


def families_of_methods(rng: np.random.Generator) -> list[Cell]:
    """Draw six trained methods in two families, each of which reacts to a seed in its own way."""
    return [
        cell(1 + 3 * family + number, seed, 3 * of_family + rng.normal() + noise, seeded=True)
        for seed in range(3)
        for family, of_family in enumerate(rng.normal(size=2))
        for number in range(3)
        for noise in [rng.normal(size=NUM_PROMPTS)]
    ]


def better_with_each_seed(rng: np.random.Generator, number: int) -> list[Cell]:
    """Draw two trained methods whose difference is 1.5 of its standard deviations over seeds."""
    gaps, noise = rng.normal(size=number), np.repeat([-0.1, 0.1], 4)
    return [
        cell(method + 1, seed, noise + method * (gaps[seed] + 1.5), seeded=True)
        for seed in range(number)
        for method in range(2)
    ]


def frozen_study(scores: Numbers, clusters: Iterable[int] | None = None) -> list[Cell]:
    """Return a study of frozen methods with scores (methods, prompts), for a single seed."""
    return [cell(method, 0, own, clusters=clusters) for method, own in enumerate(scores)]


def skewed(rng: np.random.Generator, number: int) -> list[Cell]:
    """Draw seven frozen methods whose scores, with the mean 0, are more and less skewed."""
    sigmas = np.linspace(0.2, 1, 7)
    drawn = [np.exp(rng.normal(size=number) * sigma) - np.exp(sigma**2 / 2) for sigma in sigmas]
    return frozen_study(np.stack(drawn))


def better_on_documents(rng: np.random.Generator, gain: float) -> list[Cell]:
    """Draw six frozen methods on six documents; the last is better by `gain` nats (SD 0.013)."""
    scores = rng.normal(size=6) + rng.normal(0, 0.013 / np.sqrt(2), (6, 6))
    scores[-1] += gain
    return frozen_study(scores)


def unequal_documents(rng: np.random.Generator) -> list[Cell]:
    """Draw seven frozen methods on twelve documents of one to twenty windows."""
    clusters = np.repeat(np.arange(12), rng.integers(1, 21, size=12))
    scores = rng.normal(size=(7, 12))[:, clusters] + rng.normal(size=(7, len(clusters)))
    return frozen_study(scores, clusters)


def few_prompts_in_tasks(rng: np.random.Generator) -> list[Cell]:
    """Draw seven frozen methods on four tasks of three prompts, whose spreads differ 50-fold."""
    return [
        replace(cell(method, 0, spread * rng.normal(size=3)), task=f"task {task}")
        for method in range(7)
        for task, spread in enumerate((0.1, 1.0, 1.0, 5.0))
    ]


def null_studies() -> Iterator[tuple[str, Draw]]:
    for methods, seeds in ((7, 3), (7, 5), (27, 3)):
        for ratio in (0.0, 1.0, 3.0):
            draw = partial(trained_study, deviations=np.full(methods, ratio), num_seeds=seeds)
            yield f"{methods} trained methods, {seeds} seeds, ratio {ratio:g}", draw
    draw = partial(trained_study, deviations=np.ones(7), seeded=True)
    yield "7 trained methods, prompts of each seed, ratio 1", draw
    lognormal = np.random.default_rng(1).lognormal(sigma=1, size=27)
    one_in_ten = np.where(np.arange(27) % 10 == 9, 10.0, 1.0)
    draw = partial(trained_study, deviations=lognormal)
    yield "27 trained methods, SDs between seeds lognormal", draw
    draw = partial(trained_study, deviations=one_in_ten)
    yield "27 trained methods, one in ten varies ten-fold", draw
    yield "6 trained methods, seeds act on two families", families_of_methods
    runs = (0, *[1] * 4, *[2] * 4)
    draw = partial(trained_study, deviations=np.full(9, 2.0), runs=runs)
    yield "8 methods on the weights of two runs", draw
    for number in (6, 12, 40):
        label = f"7 frozen methods, {number} documents"
        yield label, lambda rng, size=(7, number): frozen_study(rng.normal(size=size))
    yield "7 frozen methods, 12 documents of 1 to 20 windows", unequal_documents
    yield "7 frozen methods, 4 tasks of 3 prompts", few_prompts_in_tasks
    label = "7 frozen methods, heavy-tailed (t, 3 df), 12 documents"
    yield label, lambda rng: frozen_study(rng.standard_t(3, size=(7, 12)))
    label = "7 frozen methods, right or wrong, 28 prompts"
    yield label, lambda rng: frozen_study((rng.random((7, 28)) < 0.3).astype(np.float64))
    for number in (16, 120):
        label = f"7 frozen methods, unequally skewed (lognormal 0.2 to 1), {number} documents"
        yield label, partial(skewed, number=number)


def decidable_studies() -> Iterator[tuple[str, Draw]]:
    for gain in (0.118, 0.093, 0.034):
        draw = partial(better_on_documents, gain=gain)
        yield f"6 methods, 6 documents, {gain} nats (SD 0.013)", draw
    for number in (3, 5):
        yield f"2 methods, {number} seeds, 1.5 SDs", partial(better_with_each_seed, number=number)


if __name__ == "__main__":
    measure(__doc__, rows, studies=200)
