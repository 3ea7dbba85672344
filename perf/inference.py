"""Measure the error rates of the catalog's comparisons on simulated studies.

The studies go through `paired_differences`, the function that fills the catalog, so that clusters,
families and corrections are part of the measurement. Prints Markdown tables for docs/statistics.md:

- null studies, in which all methods have the same expected score: share of studies with at least
  one significant difference among all pairs, registered as one entry of `expects` (limit 6 %), and
  share of false findings if the same pairs are exploratory;
- coverage of the 95 % interval of a single difference;
- power: documents that few studies could decide before, and seeds;
- looks: null studies that are tested after some of their seeds, with the levels of `looks` and with
  0.05 at each look, and the power that looks cost.

    python perf/inference.py [--studies 200]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from catalog.comparisons.families import paired_differences
from catalog.comparisons.pairs import EXPLORATORY, PRIMARY, Looks, Predicted, Prediction
from catalog.comparisons.samples import Aggregation, Cell, SampleScores
from lce_core.statistics.significance import holm

Numbers = NDArray[np.float64]
Draw = Callable[[np.random.Generator], list[Cell]]
"""Draws the cells of one study."""


def cell(
    method: int,
    seed: int,
    scores: Numbers,
    *,
    seeded: bool = False,
    aggregation: Aggregation = "mean",
    clusters: Iterable[int | None] | None = None,
) -> Cell:
    """Return a cell of one trained method; method 0 is the frozen base model with one run."""
    value = float(scores.mean()) if aggregation == "mean" else float(np.exp(scores.mean()))
    names = np.array([None] * len(scores) if clusters is None else list(clusters), dtype=object)
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
        value=value,
        unit="nats" if aggregation == "mean" else "perplexity",
        higher_is_better=aggregation == "mean",
        seeded=seeded,
        scored=SampleScores(np.arange(len(scores)), scores, names),
        method_family=None,
        aggregation=aggregation,
    )


def trained_study(
    rng: np.random.Generator,
    *,
    num_methods: int,
    deviations: Numbers,
    seeded: bool = False,
    aggregation: Aggregation = "mean",
    num_seeds: int = 3,
    num_prompts: int = 40,
    runs: Sequence[int] | None = None,
) -> list[Cell]:
    """Draw a study of tuned methods and the base model, all with the expected score 0.

    Args:
      rng: source of the scores.
      num_methods: number of methods, the base model included.
      deviations: standard deviation between training seeds of each method, shape (methods,), in
        standard errors of a mean over prompts. The base model has one training run.
      seeded: True if each seed has its own prompts.
      aggregation: "mean", or "power of mean" for perplexities, whose logarithms have these scores.
      num_seeds: training runs of each tuned method.
      num_prompts: prompts of each cell.
      runs: number of the training run that each method evaluates; its own by default. Methods of
        one run share its deviation and add half as much of their own.
    """
    error = 1 / np.sqrt(num_prompts)
    hard, own = rng.normal(size=num_prompts), rng.normal(size=(num_methods, num_prompts)) * 0.7
    cells = []
    for seed in range(num_seeds):
        if seeded:
            hard = rng.normal(size=num_prompts)
            own = rng.normal(size=(num_methods, num_prompts)) * 0.7
        of_seed = rng.normal() * deviations[-1] * error
        of_run = rng.normal(size=num_methods) if runs else np.zeros(num_methods)
        for method in range(num_methods):
            scores = hard + own[method]
            if method:
                own_run = rng.normal() if not runs else of_run[runs[method]] + rng.normal() / 2
                run = of_seed + own_run * deviations[method] * error
                scores = scores + run + 0.7 * rng.normal(size=num_prompts)
            drawn = cell(method, seed, scores, seeded=seeded, aggregation=aggregation)
            if runs and method:
                drawn = replace(drawn, checkpoint=f"run {runs[method]}-{seed}")
            cells.append(drawn)
    return cells


def frozen_study(scores: Numbers) -> list[Cell]:
    """Return a study of frozen methods with scores (methods, prompts), for a single seed."""
    return [cell(method, 0, own) for method, own in enumerate(scores)]


def skewed_study(num_prompts: int, rng: np.random.Generator) -> list[Cell]:
    """Draw a study of seven frozen methods whose scores are more and less skewed."""
    return frozen_study(np.stack([lognormal(s, num_prompts, rng) for s in np.linspace(0.2, 1, 7)]))


def all_pairs(cells: list[Cell]) -> Predicted:
    """Return the expectation that every method differs from every other, as one entry."""
    methods = dict.fromkeys(one.method for one in cells)
    return {
        ("study", "model", "benchmark", 1024, None, frozenset(pair)): Prediction(PRIMARY)
        for pair in combinations(methods, 2)
    }


def false_differences(draw: Draw, num_studies: int) -> tuple[float, float]:
    """Return how often null studies have a significant difference: registered, and exploratory."""
    rng, registered, explored = np.random.default_rng(0), [], []
    for number in range(num_studies):
        cells = draw(rng)
        registered.append(is_found(cells, all_pairs(cells)))
        if number % 4 == 0:
            explored.append(is_found(cells, {}))
    return float(np.mean(registered)), float(np.mean(explored))


def is_found(cells: list[Cell], predicted: Predicted) -> bool:
    """Return True if any difference of a study is significant: of the predicted ones, if any."""
    family = PRIMARY if predicted else EXPLORATORY
    rows = paired_differences(cells, predicted)
    return any(row["p_adjusted"] <= 0.05 for row in rows if row["family"] == family)


def coverage(draw: Draw, difference: float, num_studies: int) -> float:
    """Return the share of intervals that contain the true difference of two methods."""
    rng, hits = np.random.default_rng(0), []
    for _ in range(num_studies):
        (row,) = paired_differences(draw(rng), {})
        if row["ci_low"] is not None:  # methods with equal scores have no interval
            hits.append(row["ci_low"] <= difference <= row["ci_high"])
    return float(np.mean(hits))


def power(draw: Draw, num_studies: int) -> float:
    """Return how often the last method is found to differ from the first, of all pairs."""
    rng, found = np.random.default_rng(0), []
    for _ in range(num_studies):
        cells = draw(rng)
        ends = {cells[0].method[0], cells[-1].method[0]}
        (row,) = (
            row
            for row in paired_differences(cells, all_pairs(cells))
            if {row["method"], row["other_method"]} == ends
        )
        found.append(row["p_adjusted"] <= 0.05)
    return float(np.mean(found))


def better_on_documents(gain: float, number: int) -> Draw:
    """Return how to draw six frozen methods; the last is better by `gain` nats (SD 0.013)."""

    def draw(rng: np.random.Generator) -> list[Cell]:
        scores = rng.normal(size=number) + rng.normal(0, 0.013 / np.sqrt(2), (6, number))
        scores[-1] += gain
        return frozen_study(scores)

    return draw


def documents(rng: np.random.Generator, number: int, *, exact: bool) -> list[Cell]:
    """Draw two frozen methods whose scores differ by 0.5 standard deviations on average.

    If `exact`, mean and standard deviation of the differences are the true ones.
    """
    gaps = rng.normal(size=number)
    if exact:
        gaps = (gaps - gaps.mean()) / gaps.std(ddof=1)
    return frozen_study(np.stack([np.zeros(number), gaps + 0.5]))


def seeds(rng: np.random.Generator, number: int, *, exact: bool) -> list[Cell]:
    """Draw two trained methods whose difference is 1.5 of its standard deviations over seeds.

    If `exact`, mean and standard deviation of the differences are the true ones.
    """
    gaps = rng.normal(size=number)
    if exact:
        gaps = (gaps - gaps.mean()) / gaps.std(ddof=1)
    noise = np.repeat([-0.1, 0.1], 4)
    return [
        cell(method + 1, seed, noise + method * (gaps[seed] + 1.5), seeded=True)
        for seed in range(number)
        for method in range(2)
    ]


def needed_power(draw: Callable[..., list[Cell]], number: int, num_studies: int) -> float:
    """Return how often new studies decide if they have the number that an undecided study states.

    Args:
      draw: draws a study; the comparison of its first and last method counts.
      number: documents or seeds of the undecided studies, whose estimates are the true values.
      num_studies: number of undecided studies; for each, one new study has the stated number.
    """
    rng, found = np.random.default_rng(0), []

    def compared(cells: list[Cell]) -> dict[str, Any]:
        first, last = cells[0].method, cells[-1].method
        rows = paired_differences(cells, {})
        (row,) = (r for r in rows if {r["method"], r["other_method"]} == {first[0], last[0]})
        return row

    for _ in range(num_studies):
        needed = compared(draw(rng, number, exact=True))["num_needed"]
        row = compared(draw(rng, needed, exact=False))
        found.append(row["p_value"] <= 0.05)
    return float(np.mean(found))


def normal_documents(number: int, rng: np.random.Generator) -> list[Cell]:
    return frozen_study(rng.normal(size=(7, number)))


def heavy_tailed(rng: np.random.Generator) -> list[Cell]:
    return frozen_study(rng.standard_t(3, size=(7, 12)))


def right_or_wrong(rng: np.random.Generator) -> list[Cell]:
    return frozen_study((rng.random((7, 28)) < 0.3).astype(np.float64))


def unequal_documents(rng: np.random.Generator) -> list[Cell]:
    """Draw seven frozen methods on twelve documents of one to twenty windows."""
    sizes = rng.integers(1, 21, size=12)
    clusters = np.repeat(np.arange(12), sizes)
    scores = rng.normal(size=(7, 12))[:, clusters] + rng.normal(size=(7, len(clusters)))
    return [cell(method, 0, own, clusters=clusters) for method, own in enumerate(scores)]


def few_prompts_in_tasks(rng: np.random.Generator) -> list[Cell]:
    """Draw seven frozen methods on four tasks of three prompts, whose spreads differ 50-fold."""
    return [
        replace(cell(method, 0, spread * rng.normal(size=3)), task=f"task {task}")
        for method in range(7)
        for task, spread in enumerate((0.1, 1.0, 1.0, 5.0))
    ]


def families_of_methods(rng: np.random.Generator, num_seeds: int = 3) -> list[Cell]:
    """Draw six trained methods in two families, each of which reacts to a seed in its own way."""
    return [
        cell(1 + 3 * family + number, seed, 3 * of_family + rng.normal() + noise, seeded=True)
        for seed in range(num_seeds)
        for family, of_family in enumerate(rng.normal(size=2))
        for number in range(3)
        for noise in [rng.normal(size=40)]
    ]


def lognormal(sigma: float, size: Any, rng: np.random.Generator) -> Numbers:
    """Draw from a lognormal distribution, shifted to the mean 0."""
    return np.asarray(np.exp(rng.normal(size=size) * sigma) - float(np.exp(sigma**2 / 2)))


def pair(distribution: str, number: int) -> tuple[Draw, float]:
    """Return how to draw two methods' scores, and their true difference."""

    def draw(rng: np.random.Generator) -> list[Cell]:
        clusters: list[int | None] = [None] * number
        if distribution == "normal":
            gaps = rng.normal(size=number)
        elif distribution.startswith("lognormal"):
            gaps = lognormal(float(distribution.split()[-1]), number, rng)
        elif distribution == "clustered":  # four prompts a document
            clusters = [*np.repeat(np.arange(number), 4)]
            gaps = np.repeat(rng.normal(size=number), 4) + rng.normal(size=4 * number)
        else:  # right or wrong: the second method answers half of its errors as the first does
            first = rng.random(number) < 0.5
            second = np.where(rng.random(number) < 0.5, first, rng.random(number) < 0.3)
            scores = np.stack([first, second]).astype(np.float64)
            return [cell(1, 0, scores[0]), cell(2, 0, scores[1])]
        own = np.zeros(len(gaps))
        return [cell(1, 0, own, clusters=clusters), cell(2, 0, gaps, clusters=clusters)]

    return draw, 0.5 - (0.25 + 0.15) if distribution == "binary" else 0.0


def shares_with_claims(draw: Draw, after: tuple[int, ...], num_studies: int) -> list[float]:
    """Return how often a study claims a difference of its last method from the base model.

    Args:
      draw: draws all seeds of a study; every method is compared with the base model.
      after: number of seeds at each look.
      num_studies: number of simulated studies.

    Returns:
      The shares of studies with a claim about the last method, and about any method: at some look
      with the levels of looks, at some look with 0.05 at each, and with one test after all seeds.
    """
    rng, claimed = np.random.default_rng(0), []
    looks = {"study": Looks(after, {})}
    for _ in range(num_studies):
        cells = draw(rng)
        methods = list(dict.fromkeys(one.method for one in cells))
        pairs = [frozenset([methods[0], other]) for other in methods[1:]]
        predicted: Predicted = {
            ("study", "model", "benchmark", 1024, None, pair): Prediction(PRIMARY) for pair in pairs
        }
        spent: list[list[bool]] = []
        naive: list[list[bool]] = []
        for number in after:
            part = [one for one in cells if one.seed < number]
            found = paired_differences(part, predicted, looks)
            rows = [row for row in found if row["family"] == PRIMARY]
            is_last = [row["method"] == methods[-1][0] for row in rows]
            for kept, values in (
                (spent, np.array([row["p_adjusted"] for row in rows])),
                (naive, holm([row["p_value"] for row in rows])),
            ):
                kept.append([bool(np.any(values[is_last] <= 0.05)), bool(np.any(values <= 0.05))])
        shares = np.any(spent, axis=0), np.any(naive, axis=0), naive[-1]
        claimed.append(np.stack(shares, axis=1).ravel())
    return list(np.mean(claimed, axis=0).tolist())


def looked_at(ratio: float | None, shift: float = 0.0) -> Draw:
    """Return a function that draws a study of six seeds.

    The study has three trained methods and the base model, or two frozen methods.

    Args:
      ratio: standard deviation between seeds, as in `trained_study`; None for two frozen methods
        that each seed compares on 40 prompts of its own.
      shift: advantage of the last method, in standard errors of a mean over prompts.
    """

    def draw(rng: np.random.Generator) -> list[Cell]:
        if ratio is None:
            return [
                replace(
                    cell(method, seed, rng.normal(size=40), seeded=True), checkpoint=f"{method}"
                )
                for seed in range(6)
                for method in (0, 1)
            ]
        cells = trained_study(rng, num_methods=4, deviations=np.full(4, ratio), num_seeds=6)
        return [
            cell(3, one.seed, one.scored.scores + shift / np.sqrt(40))
            if one.method == ("method 3", False) and one.scored
            else one
            for one in cells
        ]

    return draw


def print_looks(num_studies: int) -> None:
    print(
        "\n| looks | tests | frozen pair | ratio 0 | 1 | 3 | power |\n|---|---|--:|--:|--:|--:|--:|"
    )
    for after in ((2, 4, 6), (3, 6)):
        draws = [looked_at(ratio) for ratio in (None, 0, 1, 3)]
        # Drawing frozen pairs is cheap, so more of them are drawn.
        numbers = [2 * num_studies, *[num_studies] * 3]
        shares = [
            shares_with_claims(draw, after, number)[3:]
            for draw, number in zip(draws, numbers, strict=True)
        ]
        shares.append(shares_with_claims(looked_at(1, 4.0), after, num_studies)[:3])
        for place, tests in enumerate(("levels of `looks`", "0.05 at each", "last only")):
            found = [percent(share[place]) for share in shares]
            print("|", " | ".join([", ".join(map(str, after)), tests, *found]), "|", flush=True)


def percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def null_studies() -> Iterable[tuple[str, Draw]]:
    for num_methods, num_seeds in ((7, 3), (7, 5), (27, 3)):
        for ratio in (0.0, 1.0, 3.0):
            yield (
                f"{num_methods} trained methods, {num_seeds} seeds, ratio {ratio:g}",
                partial(
                    trained_study,
                    num_methods=num_methods,
                    num_seeds=num_seeds,
                    deviations=np.full(num_methods, ratio),
                ),
            )
    yield (
        "7 trained methods, prompts of each seed, ratio 1",
        partial(trained_study, num_methods=7, deviations=np.ones(7), seeded=True),
    )
    lognormal_sds = np.random.default_rng(1).lognormal(sigma=1, size=27)
    one_in_ten = np.where(np.arange(27) % 10 == 9, 10.0, 1.0)
    for label, deviations in (
        ("SDs between seeds lognormal", lognormal_sds),
        ("one in ten varies ten-fold", one_in_ten),
    ):
        yield (
            f"27 trained methods, {label}",
            partial(trained_study, num_methods=27, deviations=deviations),
        )
    yield "6 trained methods, seeds act on two families", families_of_methods
    yield (
        "8 methods on the weights of two runs",
        partial(
            trained_study, num_methods=9, deviations=np.full(9, 2.0), runs=(0, *[1] * 4, *[2] * 4)
        ),
    )
    for number in (6, 12, 40):
        yield f"7 frozen methods, {number} documents", partial(normal_documents, number)
    yield "7 frozen methods, 12 documents of 1 to 20 windows", unequal_documents
    yield "7 frozen methods, 4 tasks of 3 prompts", few_prompts_in_tasks
    yield "7 frozen methods, heavy-tailed (t, 3 df), 12 documents", heavy_tailed
    yield "7 frozen methods, right or wrong, 28 prompts", right_or_wrong
    for number in (16, 120):
        yield (
            f"7 frozen methods, unequally skewed (lognormal 0.2 to 1), {number} documents",
            partial(skewed_study, number),
        )


def print_nulls(num_studies: int) -> None:
    print("| null study | one registered entry | exploratory |\n|---|--:|--:|")
    for label, draw in null_studies():
        found = false_differences(draw, num_studies)
        print("|", " | ".join([label, *map(percent, found)]), "|", flush=True)


def print_coverage(num_studies: int) -> None:
    print("\n| differences | 6 documents | 20 | 120 |\n|---|--:|--:|--:|")
    for distribution in (
        "normal",
        "lognormal 0.5",
        "lognormal 1",
        "binary",
        "clustered",
    ):
        found = [coverage(*pair(distribution, number), num_studies) for number in (6, 20, 120)]
        print("|", " | ".join([distribution, *map(percent, found)]), "|", flush=True)


def print_power(num_studies: int) -> None:
    print("\n| study | power |\n|---|--:|")
    for gain in (0.118, 0.093, 0.034):
        share = power(better_on_documents(gain, 6), num_studies)
        print(f"| 6 methods, 6 documents, {gain} nats (SD 0.013) | {percent(share)} |", flush=True)
    for number in (3, 5):
        draw = partial(seeds, number=number, exact=False)
        print(f"| 2 methods, {number} seeds, 1.5 SDs | {percent(power(draw, num_studies))} |")
    for label, drawn, units in (("6 documents", documents, 6), ("3 seeds", seeds, 3)):
        share = needed_power(drawn, units, num_studies)
        print(f"| undecided with {label}, then as many as needed | {percent(share)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--studies", type=int, default=200, help="simulated studies of each kind")
    number = parser.parse_args().studies
    print_nulls(number)
    print_coverage(5 * number)
    print_power(number)
    print_looks(number)


if __name__ == "__main__":
    main()
