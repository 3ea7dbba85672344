"""Plan the trials of a tuned variant, and the step that chooses its best value."""

from __future__ import annotations

from collections.abc import Callable

from lce_core.benchmarks import BENCHMARKS, Benchmark
from lce_core.statistics.estimates import INTERVALS
from lce_core.store.steps import Step, make_step
from lce_core.study.planned_data import Steps, Text, add_step
from lce_core.study.spec import MethodEntry
from lce_core.study.step_kinds import CellSpec, ChoiceSpec
from lce_core.study.tuning import BEST, Tune, changed


def plan_choice(
    text: Text,
    steps: Steps,
    variant: MethodEntry,
    tune: Tune,
    train: Callable[[MethodEntry], Step | None],
) -> Step:
    """Add a trial for each value, its scores on validation text and the choice; return the choice.

    `train` adds the training steps of a variant at the tuning seed and returns the last one.
    """
    domains = tune.domains or text.study.corpus.domains()
    label = variant.label.removesuffix(BEST)
    training = text.study.training_of(variant)
    scored = {}
    for number, value in enumerate(tune.values):
        trial = variant.model_copy(
            update={
                "label": f"{label}_trial{number + 1}",
                "training": changed(training, tune.field, value),
                "train_tokens": tune.train_tokens or variant.train_tokens,
                "at_best": False,
            }
        )
        checkpoint = train(trial)
        assert checkpoint is not None, "a trial is trained"
        for domain in domains:
            cell = _cell(text, steps, trial, checkpoint, domains, domain)
            scored[ChoiceSpec.role(number, domain)] = cell
    spec = ChoiceSpec(field=tune.field, values=[*tune.values], domains=[*domains])
    axes = {
        "base_model": text.base_model.known_as,
        "method": variant.label,
        "frozen": False,
        "method_name": variant.method.plugin_name,
        "common_method": label,
        "common_value": getattr(training, tune.field),
        "seed": tune.seed,
    }
    name = f"{text.base_model.known_as}-{variant.name}"
    return add_step(steps, make_step(spec, name, scored, axes))


def _benchmark(domains: tuple[str, ...]) -> Benchmark:
    # No choice reads perplexity_last, so `last` is 1, which allows short windows.
    settings = {"profile": "fast", "domains": domains, "last": 1, "store_nll": False}
    return BENCHMARKS.load("perplexity").model_validate(settings)


def _cell(
    text: Text,
    steps: Steps,
    trial: MethodEntry,
    checkpoint: Step,
    domains: tuple[str, ...],
    domain: str,
) -> Step:
    study, target = text.study, text.study.target_of(trial)
    spec = CellSpec(
        base_model=text.base_model,
        weights=text.weights,
        method=trial.method,
        target_context=target,
        benchmark=_benchmark(domains),
        task=domain,
        eval_length=target,
        evaluation=study.evaluation.inference(),
        intervals=INTERVALS,
    )
    axes = {
        "base_model": text.base_model.known_as,
        "method": trial.label,
        "chosen_for": checkpoint.axes["chosen_for"],
        "frozen": False,
        "seed": checkpoint.axes["seed"],
        "benchmark": spec.benchmark.plugin_name,
        "task": domain,
        "eval_length": target,
    }
    parents = {"held_out": text.validation(steps), "checkpoint": checkpoint}
    names = (axes["base_model"], trial.name, f"s{axes['seed']}", "validation", domain, target)
    return add_step(steps, make_step(spec, "-".join(map(str, names)), parents, axes))
