"""`tune`: equal trials for every method, on text that is never reported, and their use."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from torch.nn.functional import cross_entropy
from transformers import AutoModelForCausalLM

from catalog.build import build_catalog
from catalog.queries import run_query
from dashboards.contents import Contents, read_contents
from dashboards.sections import training
from lce_core.data.held_out import HeldOutText
from lce_core.errors import DataError, SpecError
from lce_core.store.artifacts import Store
from lce_core.store.records import Record
from lce_core.study.plan import StudyPlan
from lce_core.study.progress import StepState, needed_steps
from lce_core.study.units import abandoned, units_to_do
from lce_core.training.job import TrainingJob
from tests.lce_core.study.smoke_plans import new_runner
from tests.support.free_steps import write_file
from tests.support.studies import TINY, compiled

RATES = [1.0e-5, 2.0e-3, 1.0]
"""The last one is so high that a trial with it cannot be the best."""
TUNE = {"learning_rate": RATES}
NONE: list[dict[str, Any]] = [{"name": "none", "tuned": True}]
STUDY: dict[str, Any] = TINY | {
    "study": "fair",
    "target_context": 128,
    "train_tokens": 8192,
    "base_models": [{"name": "toy_llama", "steps": 8}],
    "methods": ["none", *NONE, {"name": "pi", "tuned": True}],
    "tune": TUNE,
    "evaluation": {"held_out_tokens": 4096, "held_out_document_tokens": 1024},
    "benchmarks": [
        {"name": "perplexity", "profile": "tiny", "lengths": [128], "domains": ["code"]}
    ],
}


def planned(library: Path, **changes: Any) -> StudyPlan:
    return compiled({**STUDY, **changes}, library)


@pytest.fixture(scope="module")
def computed(library, tmp_path_factory) -> tuple[StudyPlan, Store]:
    """The study with all its steps in a store, parents first."""
    plan = planned(library)
    runner, store = new_runner(tmp_path_factory.mktemp("home"), library)
    assert {runner.ensure(step) for step in plan.steps.values()} == {"computed"}
    store.studies.save_plan("fair", plan.to_json(), "fair.yaml")
    return plan, store


def folder_of(store: Store, fingerprint: str) -> Path:
    folder = store.find(fingerprint)
    assert folder is not None
    return folder


def test_every_tuned_method_gets_the_same_trials(library):
    plan = planned(library)
    trials = [step for step in plan.steps.values() if "_trial" in step.name]
    runs = [step for step in trials if step.kind == "finetune"]
    keys = ("training", "num_steps", "row_length", "seed")
    settings = [{key: step.spec[key] for key in keys} for step in runs]
    assert settings[:3] == settings[3:]
    assert [one["training"]["learning_rate"] for one in settings[:3]] == RATES
    assert {one["seed"] for one in settings} == {1000}
    assert len({step.parents["rows"] for step in runs}) == 1
    scored = [step for step in trials if step.kind == "cell"]
    assert len({step.parents["held_out"] for step in scored}) == 1
    assert len(runs) == len(scored) == 6


def test_a_method_stands_in_the_study_with_the_common_and_with_its_own_value(library):
    plan = planned(library)
    without = compiled({key: value for key, value in STUDY.items() if key != "tune"}, library)
    names = [variant.name for variant in plan.study.methods]
    assert names == ["none", "none-tuned", "none_best-tuned", "pi-tuned", "pi_best-tuned"]
    assert set(without.steps) < set(plan.steps)
    best = next(s for s in plan.steps.values() if s.name.startswith("toy_llama-pi_best-tuned-s0"))
    assert plan.steps[best.parents["choice"]].kind == "choice"
    assert {cell.seed for cell in plan.cells} == set(STUDY["seeds"])
    # An entry with another value of its own keeps it.
    own = {"name": "pi", "tuned": True, "training": {"learning_rate": 0.1}}
    names = [variant.name for variant in planned(library, methods=[*NONE, own]).study.methods]
    assert names == ["none-tuned", "none_best-tuned", "pi-tuned"]


def test_names_at_the_best_value_can_be_used_in_the_study_file(library):
    expects = [{"better": "pi_best-tuned", "than": ["none_best-tuned"], "benchmark": "perplexity"}]
    methods = [*STUDY["methods"], {"name": "yarn", "tuned": True, "start_from": "pi_best-tuned"}]
    plan = planned(library, expects=expects, methods=methods)
    starts = {s.name: s.parents["base"] for s in plan.steps.values() if s.kind == "finetune"}
    at_tuning_seed = plan.steps[starts["toy_llama-yarn_trial1-tuned-s1000"]]
    assert at_tuning_seed.name == "toy_llama-pi_best-tuned-s1000"
    assert plan.to_json()["expects"][0]["method"] == "pi_best"


@pytest.mark.parametrize(
    ("tune", "other", "named"),
    [
        ({"learning_rate": [1.0e-3]}, {}, "tune.learning_rate: got [0.001]; expected at least two"),
        ({"tokens_per_step": [128, 256]}, {}, "tune.tokens_per_step: got a field that cannot be"),
        ({"seed": 5}, {}, "got no field of `training`"),
        ({"learning_rate": [1e-3, 2e-3], "adam_beta2": [0.9, 0.99]}, {}, "learning_rate and adam"),
        ({**TUNE, "seed": 0}, {}, "tune.seed: got 0, a seed of the study"),
        ({**TUNE, "domains": ["cod"]}, {}, "tune.domains: got 'cod'"),
        (TUNE, {"methods": ["none"]}, "got a study without tuned methods"),
        ({**TUNE, "train_tokens": 10}, {}, "10 tokens for one training run"),
        ({**TUNE, "validation_tokens": 127}, {}, "tune.validation_tokens: got 127; expected at"),
        (TUNE, {"methods": [{**NONE[0], "label": "p" * 60}]}, "characters"),
    ],
)
def test_a_search_that_would_not_be_fair_is_refused(tune, other, named, library):
    with pytest.raises(SpecError) as raised:
        planned(library, tune=tune, **other)
    assert named in str(raised.value)


@pytest.mark.slow
def test_the_value_with_the_lowest_loss_on_validation_text_is_chosen_and_used(computed):
    plan, store = computed
    choices = [step for step in plan.steps.values() if step.kind == "choice"]
    assert len(choices) == 2
    for choice in choices:
        found = Record.read(folder_of(store, choice.fingerprint)).result
        assert found["value"] == RATES[int(np.argmin(found["nll"]))] == 2.0e-3
        for number, role in enumerate(choice.parents):
            cell = plan.steps[choice.parents[role]]
            trial = plan.steps[cell.parents["checkpoint"]]
            assert trial.spec["training"]["learning_rate"] == RATES[number]
            if choice.axes["method"] == "none_best":  # stock transformers computes plain RoPE
                expected = _loss(store, cell.parents["checkpoint"], cell.parents["held_out"])
                assert found["nll"][number] == pytest.approx(expected, abs=1e-4)
    for step in plan.steps.values():
        if step.kind == "finetune" and "choice" in step.parents:
            folder = folder_of(store, step.fingerprint)
            lines = (folder / "loss.jsonl").read_text(encoding="utf-8").splitlines()
            assert json.loads(lines[-1])["learning_rate"] == pytest.approx(2.0e-3)
            assert Record.read(folder).result["chosen"] == {"learning_rate": 2.0e-3}


def _loss(store: Store, checkpoint: str, held_out: str) -> float:
    """Mean over whole windows of 128 tokens, as transformers' own Llama computes it."""
    model = AutoModelForCausalLM.from_pretrained(
        folder_of(store, checkpoint) / "model", dtype=torch.float32
    )
    stream = HeldOutText.open(folder_of(store, held_out)).stream("code")
    windows = torch.tensor(stream[: len(stream) // 128 * 128].astype(int)).reshape(-1, 128)
    with torch.no_grad():
        logits = model(windows).logits[:, :-1]
    return float(cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten()))


@pytest.mark.slow
def test_no_document_is_both_validation_text_and_reported_text(computed):
    plan, store = computed
    cells = {cell.step.fingerprint for cell in plan.cells if cell.step}
    reported: set[str] = set()
    validation: set[str] = set()
    for step in plan.steps.values():
        if step.kind == "cell":
            folder = folder_of(store, step.parents["held_out"])
            names = pq.read_table(folder / "documents.parquet")["name"].to_pylist()
            numbers = pq.read_table(folder / "order.parquet")["document"].to_pylist()
            found = {names[number] for number in numbers}
            (reported if step.fingerprint in cells else validation).update(found)
    assert len(reported) >= 4
    assert validation
    assert not reported & validation


@pytest.mark.slow
def test_without_text_beyond_the_reported_text_nothing_is_chosen(library, tmp_path):
    plan = planned(library, evaluation={"held_out_tokens": 10**7})
    step = next(s for s in plan.steps.values() if s.name.endswith("-validation"))
    with pytest.raises(DataError, match="no held-out text beyond the 10,000,000 reported tokens"):
        new_runner(tmp_path, library)[0].ensure(step)


def test_a_chosen_whole_number_reaches_the_processes_of_a_training_run(
    library, tmp_path, monkeypatch
):
    plan = planned(library, tune={"warmup_steps": [1, 2]})
    runner, store = new_runner(tmp_path, library)
    best = next(s for s in plan.steps.values() if s.name.startswith("toy_llama-pi_best-tuned-s0"))
    chosen, jobs = {"field": "warmup_steps", "value": 2.0}, list[TrainingJob]()
    for parent in best.parents.values():
        store.ensure(plan.steps[parent], lambda attempt: write_file(attempt) or chosen, {})

    def run(job: TrainingJob, _: Any) -> dict[str, Any]:
        jobs.append(job)
        (job.out / "file").touch()
        return {}

    monkeypatch.setattr("lce_core.runners.run", run)
    assert runner.ensure(best) == "computed"
    sent = TrainingJob.model_validate_json(jobs[0].model_dump_json())
    assert sent.training.warmup_steps == 2


def test_trials_wait_for_the_validation_text_and_fall_with_it(library):
    plan = planned(library)
    units = units_to_do(plan, {name: StepState("missing", "") for name in plan.steps})
    text = next(name for name, s in plan.steps.items() if s.name.endswith("-validation"))
    trials = {unit.name for unit in units if "_trial" in unit.name}
    assert len(trials) == 12
    assert trials < {unit.name for unit in abandoned(units, {text})}
    common = [unit for unit in units if unit.name.endswith("pi-tuned-s0")]
    assert [unit.kind for unit in common] == ["finetune"]
    assert not abandoned(common, {text})
    # The text is no parent of a trial, but the trial waits for it.
    trial = next(s for s in plan.steps.values() if "_trial" in s.name and s.kind == "finetune")
    alone = replace(plan, cells=(replace(plan.cells[0], step=trial),))
    states = {name: StepState("missing", "") for name in plan.steps}
    assert needed_steps(alone, states) >= {trial.fingerprint, text, *trial.parents.values()}
    states[trial.fingerprint] = StepState("done", "")
    assert needed_steps(alone, states) == set()


@pytest.mark.slow
def test_no_trial_trains_if_validation_text_is_shorter_than_a_window(library, tmp_path):
    corpus = planned(library).study.corpus
    held_out = [file for file in library.iterdir() if corpus.split(file.name) == "held_out"]
    # Documents have 100 tokens, and only the last one starts after the reported text.
    few = {"held_out_tokens": 100 * (len(held_out) - 1), "held_out_document_tokens": 100}
    plan = planned(library, evaluation=few, tune={**STUDY["tune"], "validation_tokens": 4096})
    runner, _ = new_runner(tmp_path, library)
    trial = next(s for s in plan.steps.values() if s.kind == "finetune" and "_trial" in s.name)
    runner.ensure(plan.steps[trial.axes["validation"]])
    with pytest.raises(DataError, match="got 100 tokens; expected at least 128 tokens, one window"):
        runner.ensure(trial)


@pytest.fixture(scope="module")
def catalog(computed) -> Path:
    return build_catalog(computed[1])


@pytest.mark.slow
def test_the_catalog_has_each_trial_and_the_rate_that_was_used(catalog):
    asked = "SELECT method, method_name, value, chosen, at_edge, common_method FROM trials"
    rows = run_query(catalog, asked)[1]
    assert rows[3:] == [
        ("pi_best", "pi", 1.0e-5, False, False, "pi"),
        ("pi_best", "pi", 2.0e-3, True, False, "pi"),
        ("pi_best", "pi", 1.0, False, False, "pi"),
    ]
    asked = "SELECT DISTINCT method, frozen, method_name, learning_rate FROM cells ORDER BY ALL"
    common = STUDY["training"]["learning_rate"]
    assert run_query(catalog, asked)[1] == [
        ("none", False, "none", common),
        ("none", True, "none", None),
        ("none_best", False, "none", 2.0e-3),
        ("pi", False, "pi", common),
        ("pi_best", False, "pi", 2.0e-3),
    ]


@pytest.mark.slow
def test_the_report_compares_both_results_and_marks_a_choice_at_the_edge(catalog):
    contents = read_contents(catalog, "fair")
    assert training.AT_EDGE not in training.tuning(contents)
    places = [(row["benchmark"], row["eval_length"], row["method"]) for row in contents.own_best]
    assert sorted(places) == [("perplexity", 128, "none"), ("perplexity", 128, "pi")]
    asked = "SELECT method, value FROM benchmark_by_length WHERE NOT frozen"
    values = dict(run_query(catalog, asked)[1])
    for row in contents.own_best:
        assert row["common_score"] == values[row["method"]]
        assert row["own_score"] == values[f"{row['method']}_best"]
        assert row["own_rank"] in (1, 2)
    edge = [{**row, "at_edge": row["chosen"]} for row in contents.trials]
    table = training.trials(Contents(contents.study, {**contents.rows, "trials": edge}))
    assert [row[-1] for row in table.rows] == [training.AT_EDGE] * 2
