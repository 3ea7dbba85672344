"""`match: flops`: every tuned method gets the same training FLOPs, in whole optimizer steps.

`seeds_vary` separates the seed of the training data from the seed of the initial weights.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file

from catalog.build import build_catalog
from catalog.queries import run_query
from lce_core.errors import SpecError
from lce_core.methods import METHODS, Method
from lce_core.models import MODELS
from lce_core.store.records import Record
from lce_core.store.steps import Step
from lce_core.study.plan import StudyPlan
from lce_core.study.step_kinds import step_cost
from tests.lce_core.study.smoke_plans import new_runner
from tests.support.extended_models import WITH_DEFAULTS
from tests.support.studies import TINY, compiled

TOY_WEIGHTS = 2 * (4 * 96 * 96 + 3 * 96 * 256) + 96 * 392
"""Of toy_llama: two layers of width 96 with 256 in the MLP, 392 tokens in the vocabulary."""
STEP = 2048
"""Tokens of an optimizer step."""
STUDY: dict[str, Any] = TINY | {
    "study": "matched",
    "target_context": 512,
    "train_tokens": 20 * STEP,
    "match": "flops",
    "base_models": [{"name": "toy_llama", "steps": 4}],
    "training": {"learning_rate": 1.0e-3, "tokens_per_step": STEP},
    "benchmarks": [
        {"name": "perplexity", "profile": "tiny", "lengths": [128], "domains": ["code"]}
    ],
}
TRAINABLE = [
    name
    for name in WITH_DEFAULTS
    if METHODS.load(name).training != "none" and METHODS.load(name).layer is Method.layer
]
"""Methods whose defaults suit the toy model, whose two layers are too few for some."""
NONE = {"name": "none", "tuned": True}
LORA = {"name": "longlora", "tuned": True}
SHORT = {"name": "yarn", "tuned": True, "train_length": 128, "train_positions": "pose"}


def by_hand(tokens: int, length: int) -> float:
    """FLOPs of training all weights of toy_llama with full attention: 3 x (products, attention)."""
    return tokens * 3 * (2 * TOY_WEIGHTS + 4 * 2 * 96 * length / 2)


def planned(library: Path, *methods: Any, **changes: Any) -> StudyPlan:
    return compiled({**STUDY, "methods": list(methods), **changes}, library)


def runs(plan: StudyPlan, seed: int = 0) -> list[Step]:
    """Fine-tuning runs of the study's seed."""
    found = [step for step in plan.steps.values() if step.kind == "finetune"]
    return [step for step in found if step.axes["seed"] == seed]


def steps_by_method(plan: StudyPlan, seed: int = 0) -> dict[str, int]:
    return {run.axes["method"]: run.spec["num_steps"] for run in runs(plan, seed)}


@pytest.mark.parametrize("name", TRAINABLE)
@settings(max_examples=4)  # of each method; a plan takes long enough to notice
@given(target=st.sampled_from([256, 512, 1024, 2048]), tokens=st.integers(12 * STEP, 10**6))
def test_each_trainable_method_gets_the_budget_within_half_a_step(library, name, target, tokens):
    entry = {"name": name, "tuned": True}
    plan = planned(library, entry, target_context=target, train_tokens=tokens)
    spent = sum(step_cost(run).all_flops for run in runs(plan))
    last = runs(plan)[-1]
    one_step = step_cost(last).all_flops / last.spec["num_steps"]
    assert abs(spent - by_hand(tokens, target)) <= one_step * 0.500001
    [cell] = plan.cells
    assert cell.train_flops == pytest.approx(spent)
    assert cell.train_tokens == STEP * sum(run.spec["num_steps"] for run in runs(plan))


def test_cheaper_methods_train_on_more_tokens_by_numbers_computed_by_hand(library):
    # Half of the heads attend in blocks of 128 tokens (64 keys on average), half in three of them
    # and two of 64 tokens (56 keys). Frozen weights get no gradient.
    frozen = 2 * 2 * TOY_WEIGHTS + 3 * 4 * 2 * 96 * (64 + 56) / 2
    plan = planned(library, NONE, LORA, SHORT)
    assert steps_by_method(plan) == {
        "none": 20,
        "longlora": round(by_hand(20, 512) / frozen),
        "yarn": round(20 * by_hand(1, 512) / by_hand(1, 128)),
    }
    assert steps_by_method(plan)["longlora"] > 30


def test_weights_of_another_entry_have_its_budget_and_frozen_ones_none(library):
    other = {"name": "pi", "label": "borrowed", "weights_of": "yarn-tuned"}
    cells = planned(library, "none", SHORT, other).cells
    assert [cell.train_tokens for cell in cells] == [None, *[cells[1].train_tokens] * 2]
    assert cells[1].train_flops == cells[2].train_flops
    assert cells[1].train_flops == pytest.approx(by_hand(20 * STEP, 512), rel=0.02)


def test_trials_follow_the_same_rule(library):
    tune = {"learning_rate": [1.0e-4, 1.0e-3]}
    plan = planned(library, NONE, LORA, tune=tune)
    reported, trials = steps_by_method(plan), steps_by_method(plan, seed=1000)
    assert set(trials) == {f"{name}_trial{n}" for name in ("none", "longlora") for n in (1, 2)}
    assert all(trials[name] == reported[name.partition("_")[0]] for name in trials)
    shorter = planned(library, NONE, LORA, tune={**tune, "train_tokens": 10 * STEP})
    assert steps_by_method(shorter) == reported
    halves = steps_by_method(shorter, seed=1000)
    assert halves["none_trial1"] == 10
    assert halves["longlora_trial1"] == pytest.approx(reported["longlora"] / 2, abs=1)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"methods": ["none"]}, "match: got flops in a study without tuned methods"),
        ({"train_tokens": None}, "match: got flops in a study without `train_tokens`"),
        ({"methods": [{**LORA, "train_tokens": STEP}]}, "train_tokens 2048 of longlora-tuned"),
        (
            {"methods": [{**LORA, "training": {"recipe": "longlora"}}]},
            "match: got flops, and train_tokens 2097152000 of longlora-tuned",
        ),
    ],
)
def test_budgets_that_cannot_be_equal_are_refused(library, changes, named):
    with pytest.raises(SpecError, match=re.escape(named)):
        compiled({**STUDY, "methods": [LORA], **changes}, library)


def test_an_entry_can_use_a_recipe_without_its_number_of_tokens(library):
    recipe = {"recipe": "longlora", "tokens_per_step": STEP}
    plan = planned(library, {**LORA, "train_tokens": None, "training": recipe})
    assert plan.cells[0].train_flops == pytest.approx(by_hand(20 * STEP, 512), rel=0.02)


@pytest.mark.slow
def test_a_study_of_two_methods_trains_what_its_plan_says(library, tmp_path):
    plan = planned(library, NONE, LORA, train_tokens=2 * STEP)
    runner, store = new_runner(tmp_path, library)
    assert {runner.ensure(step) for step in plan.steps.values()} == {"computed"}
    store.studies.save_plan("matched", plan.to_json(), "matched.yaml")
    catalog = build_catalog(store)
    asked = "SELECT method, train_tokens, train_flops FROM cells ORDER BY method DESC"
    rows = run_query(catalog, asked)[1]
    assert [row[:2] for row in rows] == [("none", 2 * STEP), ("longlora", 4 * STEP)]
    for run, (method, tokens, flops) in zip(runs(plan), rows, strict=True):
        folder = store.find(run.fingerprint)
        assert folder is not None
        assert run.axes["method"] == method
        assert Record.read(folder).result["tokens"] == tokens
        assert flops == pytest.approx(by_hand(2 * STEP, 512), rel=0.15)
    assert run_query(catalog, "SELECT DISTINCT match FROM studies")[1] == [("flops",)]
    factors = run_query(catalog, "SELECT DISTINCT factor FROM control_violations")[1]
    assert ("training tokens",) not in factors


DRAWN: dict[str, Any] = TINY | {
    "methods": ["none"],
    "base_models": [{"name": "toy_llama", "steps": 1}],
    "seeds": [3, 4],
}


def drawn_plan(library: Path, **changes: Any) -> StudyPlan:
    return compiled({**DRAWN, **changes}, library)


def seeds(plan: StudyPlan) -> list[tuple[int, int | None, int]]:
    """Of each run: seed of the weights, seed of the order of rows, seed of the choice of rows."""
    return [
        (s.spec["seed"], s.spec.get("data_seed"), plan.steps[s.parents["rows"]].spec["seed"])
        for s in plan.steps.values()
        if s.kind == "base"
    ]


def test_each_seed_has_its_own_data_and_weights_unless_the_study_fixes_one(library):
    plans = [drawn_plan(library, seeds_vary=vary) for vary in ("all", "data", "weights")]
    assert drawn_plan(library).steps == plans[0].steps
    assert [seeds(plan) for plan in plans] == [
        [(3, None, 3), (4, None, 4)],
        [(3, None, 3), (3, 4, 4)],
        [(3, None, 3), (4, 3, 3)],
    ]
    first = [next(s for s in plan.steps.values() if s.kind == "base") for plan in plans]
    assert len({step.fingerprint for step in first}) == 1


def test_weights_cannot_vary_if_the_study_does_not_draw_them(library):
    with pytest.raises(SpecError, match="a base model whose weights the study does not train"):
        drawn_plan(library, base_models=["smollm2_135m"], seeds_vary="weights")


@pytest.mark.slow
@pytest.mark.parametrize("vary", ["data", "weights"])
def test_runs_differ_only_in_what_varies(vary, library, tmp_path):
    plan = drawn_plan(library, seeds_vary=vary)
    runner, store = new_runner(tmp_path, library)
    found, losses = [], []
    for step in plan.steps.values():
        if step.kind in ("rows", "base"):
            runner.ensure(step)
        if step.kind == "base":
            folder = store.path(step)
            found.append(load_file(next(folder.glob("**/model.safetensors"))))
            lines = (folder / "loss.jsonl").read_text(encoding="utf-8").splitlines()
            losses.append(json.loads(lines[0])["loss"])
    drawn = [MODELS.load("toy_llama")().initialise(seed).state_dict() for seed in (3, 4)]
    name = "model.embed_tokens.weight"
    # One step with warmup moves a weight by far less than two random draws differ.
    far = torch.dist(drawn[0][name], drawn[1][name])
    moved = torch.dist(found[0][name], found[1][name])
    assert (moved < far / 10) == (vary == "data")
    assert losses[0] != losses[1]
