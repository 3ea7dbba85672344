"""Shipped studies of large models, whole, on tiny ones: from the file to the catalog.

Strategy: every method is trained and scored, and every task is asked, in this process. Methods that
change frequencies alone are alike for a benchmark; each other one meets every kind of benchmark.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file

from catalog.build import build_catalog
from catalog.queries import run_query
from dashboards.report import write_report
from flows.settings import shipped_studies, study_path
from lce_core.benchmarks import Benchmark, OverText, PromptBenchmark
from lce_core.execution import Execution
from lce_core.runners import Runner
from lce_core.store.artifacts import Store
from lce_core.study.plan import PlannedCell, StudyPlan, compile_study
from lce_core.study.spec import MethodEntry, StudySpec
from lce_core.study.study_file import load_study, parse_study
from tests.support.shrunk_studies import (
    TINY,
    asked,
    published_weights,
    shrunk,
    study_folders,
    tiny_models,
)


class Small:
    """A study on tiny models in a folder of its own."""

    def __init__(self, raw: dict[str, Any], folder: Path) -> None:
        for name in ("data", "home"):
            (folder / name).mkdir()
        named = [base for base in raw["base_models"] if isinstance(base, str)]
        bases = [base.removeprefix(TINY) for base in named]
        models = tiny_models(bases, folder / "plugins", folder / "weights")
        # By way of JSON, because a study takes no aliases.
        study = parse_study(yaml.safe_dump(json.loads(json.dumps(raw))), "small.yaml")
        models |= published_weights(study, folder / "published")
        self.data = data = study_folders(study, folder / "data")
        self.plan: StudyPlan = compile_study(study, data, models)
        self.store = Store(folder / "home")
        self.store.prepare()
        self.runner = Runner(
            self.store,
            Execution(
                home=folder / "home",
                model_folders=models,
                data_folders=data,
                plugin_folders=(folder / "plugins",),
            ),
            lambda facts: None,
        )

    def run(self, *kinds: str) -> None:
        """Computes the steps of these kinds, or all, parents first."""
        for step in self.plan.steps.values():
            if not kinds or step.kind in kinds:
                self.runner.ensure(step)


Part = tuple[object, ...]
PAIR = "method and kind of benchmark"
"""First entry of the parts for whose sake alone no study is chosen."""


def parts(study: StudySpec, variant: MethodEntry, benchmark: Benchmark, task: str) -> set[Part]:
    """Return what a cell of `study` shows to work."""
    kind = (variant.method.plugin_name, variant.is_tuned)
    alike = variant.method.family if variant.method.exact_attention else kind[0]
    engines = (isinstance(benchmark, engine) for engine in (OverText, PromptBenchmark))
    return {
        (PAIR, alike, variant.is_tuned, *engines),
        (*kind, variant.checkpoint is None, variant.start_from is None),
        (benchmark.plugin_name, task),
        (study.base_models[0].plugin_name.removeprefix(TINY),),
    }


@cache
def covering() -> dict[str, set[Part]]:
    """Return shipped studies that have all parts but pairs between them, and what is new in each.

    The end-to-end tests run smoke and toy themselves.
    """
    whole: dict[str, set[Part]] = {}
    for name in sorted(set(shipped_studies()) - {"smoke", "toy"}):
        study = load_study(study_path(name))
        whole[name] = {
            part
            for variant in study.methods
            for entry in study.benchmarks
            for task in entry.tasks
            for part in parts(study, variant, entry.benchmark, task)
        }
    chosen: dict[str, set[Part]] = {}
    seen: set[Part] = set()
    while missing := {part for part in set().union(*whole.values()) - seen if PAIR not in part}:
        name = max(whole, key=lambda name: len(whole[name] & missing))
        chosen[name] = whole[name] - seen
        seen |= whole[name]
    return chosen


def cells_with(missing: set[Part], plan: StudyPlan) -> list[PlannedCell]:
    """Return cells that have these parts between them, as far as the plan has them."""
    variants = {(one.label, not one.is_tuned): one for one in plan.study.methods}
    benchmarks = {one.benchmark.plugin_name: one.benchmark for one in plan.study.benchmarks}
    chosen = []
    for cell in sorted(plan.cells, key=lambda cell: cell.eval_length):
        variant, benchmark = variants[cell.method, cell.frozen], benchmarks[cell.benchmark]
        own = parts(plan.study, variant, benchmark, cell.task)
        if own & missing:
            chosen.append(cell)
            missing = missing - own
    return chosen


@pytest.mark.slow
@pytest.mark.parametrize("name", covering())
def test_a_small_form_gives_the_cells_that_no_other_one_has(name, tmp_path):
    small = Small(shrunk(name), tmp_path)
    whole = compile_study(load_study(study_path(name)), small.data)
    assert asked(small.plan) == asked(whole)  # every method, benchmark and task is there
    small.plan = small.plan.with_cells(cells_with(covering()[name], small.plan))
    assert small.plan.cells
    small.run()
    study = small.plan.study.study
    small.store.studies.save_plan(study, small.plan.to_json(), "small.yaml")
    catalog = build_catalog(small.store)
    _, missing = run_query(catalog, "SELECT * FROM missing_cells")
    assert [row[5:] for row in missing] == []
    finite = "SELECT count(DISTINCT cell), bool_and(isfinite(value)) FROM scores"
    ((cells, all_finite),) = run_query(catalog, finite)[1]
    assert cells == len({cell.step.fingerprint for cell in small.plan.cells if cell.step})
    assert all_finite
    page = write_report(catalog, study, tmp_path / "report.html").read_text(encoding="utf-8")
    assert all(f'data-method="{cell.method}"' in page for cell in small.plan.cells)
    own = "SELECT DISTINCT method, frozen, target_context, train_length FROM cells"
    assert {tuple(row) for row in run_query(catalog, own)[1]} == {
        (c.method, c.frozen, c.target_context, c.train_length) for c in small.plan.cells
    }


def test_a_run_that_starts_from_another_ones_weights_moves_on_from_these(tmp_path):
    raw = shrunk("lceg-llama2-7b")
    still = {"learning_rate": 1.0e-30}
    raw |= {
        "target_context": 256,
        "train_tokens": 512,
        "training": {**raw["training"], "tokens_per_step": 512, "learning_rate": 1.0e-2},
        "methods": [
            {"name": "yarn", "tuned": True},
            # Twice as far, on the same rows, in steps that are too small to change a weight.
            {
                "name": "yarn",
                "label": "yarn_2",
                "tuned": True,
                "target_context": 512,
                "train_length": 256,
                "start_from": "yarn-tuned",
                "training": still,
            },
            {"name": "pi", "label": "pi_still", "tuned": True, "training": still},
        ],
        "benchmarks": [
            {"name": "nll_by_position", "domains": ["Book"], "lengths": [256], "profile": "fast"}
        ],
    }
    small = Small(raw, tmp_path)
    small.run("rows", "finetune")
    first, second, alone = (
        load_file(next(small.store.path(step).glob("**/model.safetensors")))
        for step in small.plan.steps.values()
        if step.kind == "finetune"
    )
    before = load_file(tmp_path / "weights" / "llama2_7b" / "model.safetensors")
    assert all(torch.equal(second[name], weight) for name, weight in first.items())
    assert all(torch.equal(alone[name], weight) for name, weight in before.items())
    assert any(not torch.equal(first[name], weight) for name, weight in before.items())
