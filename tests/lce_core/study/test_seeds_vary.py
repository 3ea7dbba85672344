"""`seeds_vary` separates the seed of the training data from the seed of the initial weights."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from lce_core.errors import SpecError
from lce_core.models import MODELS
from lce_core.study.plan import StudyPlan
from tests.lce_core.study.smoke_plans import new_runner
from tests.support.studies import TINY, compiled

STUDY: dict[str, Any] = TINY | {
    "methods": ["none"],
    "base_models": [{"name": "toy_llama", "steps": 1}],
    "seeds": [3, 4],
}


def planned(library: Path, **changes: Any) -> StudyPlan:
    return compiled({**STUDY, **changes}, library)


def seeds(plan: StudyPlan) -> list[tuple[int, int | None, int]]:
    """Of each run: seed of the weights, seed of the order of rows, seed of the choice of rows."""
    return [
        (s.spec["seed"], s.spec.get("data_seed"), plan.steps[s.parents["rows"]].spec["seed"])
        for s in plan.steps.values()
        if s.kind == "base"
    ]


def test_each_seed_has_its_own_data_and_weights_unless_the_study_fixes_one(library):
    plans = [planned(library, seeds_vary=vary) for vary in ("all", "data", "weights")]
    assert planned(library).steps == plans[0].steps
    assert [seeds(plan) for plan in plans] == [
        [(3, None, 3), (4, None, 4)],
        [(3, None, 3), (3, 4, 4)],
        [(3, None, 3), (4, 3, 3)],
    ]
    first = [next(s for s in plan.steps.values() if s.kind == "base") for plan in plans]
    assert len({step.fingerprint for step in first}) == 1


def test_weights_cannot_vary_if_the_study_does_not_draw_them(library):
    with pytest.raises(SpecError, match="a base model whose weights the study does not train"):
        planned(library, base_models=["smollm2_135m"], seeds_vary="weights")


@pytest.mark.slow
@pytest.mark.parametrize("vary", ["data", "weights"])
def test_runs_differ_only_in_what_varies(vary, library, tmp_path):
    plan = planned(library, seeds_vary=vary)
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
