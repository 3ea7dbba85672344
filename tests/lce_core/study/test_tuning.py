"""`tune`: equal trials for every method, on text that is never reported, and their use.

One tiny study is computed with the real runner. Its choices are compared with cross entropies that
transformers computes from the trials' checkpoints.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
import yaml
from torch.nn.functional import cross_entropy
from transformers import AutoModelForCausalLM

from catalog.build import build_catalog
from catalog.queries import run_query
from dashboards.contents import read_contents
from dashboards.report import report_page
from dashboards.sections import tuning
from flows.settings import make_execution
from lce_core.data.held_out import HeldOutText
from lce_core.errors import DataError, SpecError
from lce_core.runners import Runner
from lce_core.store.artifacts import Store
from lce_core.store.records import Record
from lce_core.study.plan import StudyPlan, compile_study
from lce_core.study.study_file import parse_study
from tests.support.studies import TINY, library_text

RATES = [1.0e-5, 2.0e-3, 1.0]
"""The last one is so high that a trial with it cannot be the best."""
STUDY: dict[str, Any] = TINY | {
    "study": "fair",
    "target_context": 128,
    "train_tokens": 8192,
    "base_models": [{"name": "toy_llama", "steps": 8}],
    "methods": ["none", {"name": "none", "tuned": True}, {"name": "pi", "tuned": True}],
    "tune": {"learning_rate": RATES},
    "evaluation": {"held_out_tokens": 4096, "held_out_document_tokens": 1024},
    "benchmarks": [
        {"name": "perplexity", "profile": "tiny", "lengths": [128], "domains": ["code"]}
    ],
}


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus") / "text"
    library_text(folder)
    return folder


def planned(text: Path, **changes: Any) -> StudyPlan:
    return compiled({**STUDY, **changes}, text)


def compiled(study: dict[str, Any], text: Path) -> StudyPlan:
    written = yaml.safe_dump(json.loads(json.dumps(study)))  # JSON repeats what YAML would alias
    return compile_study(parse_study(written, "fair.yaml"), {"text": text})


@pytest.fixture(scope="module")
def computed(text: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[StudyPlan, Store]:
    """The study with all its steps in a store, parents first."""
    plan, store = planned(text), Store(tmp_path_factory.mktemp("home"))
    store.prepare()
    options = {"home": store.home, "device": "cpu", "data_folders": {"text": text}}
    runner = Runner(store, make_execution(options), lambda event: None)
    assert {runner.ensure(step) for step in plan.steps.values()} == {"computed"}
    store.studies.save_plan("fair", plan.to_json(), "fair.yaml")
    return plan, store


def folder_of(store: Store, fingerprint: str) -> Path:
    folder = store.find(fingerprint)
    assert folder is not None
    return folder


def test_every_tuned_method_gets_the_same_trials(text: Path) -> None:
    plan = planned(text)
    trials = [step for step in plan.steps.values() if "_trial" in step.name]
    runs = [step for step in trials if step.kind == "finetune"]
    settings = [
        {key: step.spec[key] for key in ("training", "num_steps", "row_length", "seed")}
        for step in runs
    ]
    assert settings[:3] == settings[3:]
    assert [one["training"]["learning_rate"] for one in settings[:3]] == RATES
    assert {one["seed"] for one in settings} == {1000}
    assert len({step.parents["rows"] for step in runs}) == 1
    scored = [step for step in trials if step.kind == "cell"]
    assert len({step.parents["held_out"] for step in scored}) == 1
    assert len(runs) == len(scored) == 6


def test_a_method_stands_in_the_study_with_the_common_and_with_its_own_value(text: Path) -> None:
    plan = planned(text)
    without = compiled({key: value for key, value in STUDY.items() if key != "tune"}, text)
    names = [variant.name for variant in plan.study.methods]
    assert names == ["none", "none-tuned", "none_best-tuned", "pi-tuned", "pi_best-tuned"]
    assert set(without.steps) < set(plan.steps)
    best = next(s for s in plan.steps.values() if s.name.startswith("toy_llama-pi_best-tuned-s0"))
    assert plan.steps[best.parents["choice"]].kind == "choice"
    assert {cell.seed for cell in plan.cells} == set(STUDY["seeds"])


def test_names_at_the_best_value_can_be_used_in_the_study_file(text: Path) -> None:
    expects = [{"better": "pi_best-tuned", "than": ["none_best-tuned"], "benchmark": "perplexity"}]
    methods = [*STUDY["methods"], {"name": "yarn", "tuned": True, "start_from": "pi_best-tuned"}]
    plan = planned(text, expects=expects, methods=methods)
    starts = {s.name: s.parents["base"] for s in plan.steps.values() if s.kind == "finetune"}
    at_tuning_seed = plan.steps[starts["toy_llama-yarn_trial1-tuned-s1000"]]
    assert at_tuning_seed.name == "toy_llama-pi_best-tuned-s1000"
    assert plan.to_json()["expects"][0]["method"] == "pi_best"


def test_an_entry_with_another_value_of_its_own_keeps_it(text: Path) -> None:
    own = {"name": "pi", "tuned": True, "training": {"learning_rate": 0.1}}
    plan = planned(text, methods=[{"name": "none", "tuned": True}, own])
    names = [variant.name for variant in plan.study.methods]
    assert names == ["none-tuned", "none_best-tuned", "pi-tuned"]


@pytest.mark.parametrize(
    ("tune", "other", "named"),
    [
        ({"learning_rate": [1.0e-3]}, {}, "tune.learning_rate: got [0.001]; expected at least two"),
        ({"learning_rate": [1.0e-3, 1.0e-3]}, {}, "got [0.001, 0.001]; expected at least two"),
        ({"learning_rate": []}, {}, "got []; expected at least two values"),
        ({"lerning_rate": [1.0, 2.0]}, {}, "lerning_rate"),
        ({"tokens_per_step": [128, 256]}, {}, "tune.tokens_per_step: got a field that cannot be"),
        ({"seed": 5}, {}, "got no field of `training`"),
        ({"learning_rate": [1e-3, 2e-3], "adam_beta2": [0.9, 0.99]}, {}, "learning_rate and adam"),
        ({"learning_rate": [1.0e-3, -1.0]}, {}, "learning_rate: got -1.0"),
        ({"learning_rate": RATES, "seed": 0}, {}, "tune.seed: got 0, a seed of the study"),
        ({"learning_rate": RATES, "domains": ["cod"]}, {}, "tune.domains: got 'cod'"),
        ({"learning_rate": RATES}, {"methods": ["none"]}, "got a study without tuned methods"),
        ({"learning_rate": RATES, "train_tokens": 10}, {}, "10 tokens for one training run"),
        (
            {"learning_rate": RATES},
            {"methods": [{"name": "pi", "label": "p" * 60, "tuned": True}]},
            "characters",
        ),
    ],
)
def test_a_search_that_would_not_be_fair_is_refused(
    tune: dict[str, Any], other: dict[str, Any], named: str, text: Path
) -> None:
    with pytest.raises(SpecError) as raised:
        planned(text, tune=tune, **other)
    assert named in str(raised.value)


@pytest.mark.slow
def test_the_value_with_the_lowest_loss_on_validation_text_is_chosen_and_used(
    computed: tuple[StudyPlan, Store],
) -> None:
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
def test_no_document_is_both_validation_text_and_reported_text(
    computed: tuple[StudyPlan, Store],
) -> None:
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
def test_without_text_beyond_the_reported_text_nothing_is_chosen(
    text: Path, tmp_path: Path
) -> None:
    plan = planned(text, evaluation={"held_out_tokens": 10**7})
    store = Store(tmp_path / "home")
    store.prepare()
    options = {"home": store.home, "device": "cpu", "data_folders": {"text": text}}
    runner = Runner(store, make_execution(options), lambda event: None)
    step = next(s for s in plan.steps.values() if s.name.endswith("-validation"))
    with pytest.raises(DataError, match="no held-out text beyond the 10,000,000 reported tokens"):
        runner.ensure(step)


@pytest.mark.slow
def test_the_catalog_has_each_trial_and_the_rate_that_was_used(
    computed: tuple[StudyPlan, Store],
) -> None:
    _, store = computed
    catalog = build_catalog(store)
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
def test_the_report_shows_each_trial_and_both_results(computed: tuple[StudyPlan, Store]) -> None:
    _, store = computed
    catalog = build_catalog(store)
    page = report_page(catalog, "fair")
    section = page[page.index('<section id="tuning">') :].partition("</section>")[0]
    nll = run_query(catalog, "SELECT nll FROM trials WHERE method = 'pi_best' AND chosen")[1][0][0]
    assert re.findall(r'data-value="([^"]*)"><b>', section)[1] == repr(nll)
    assert tuning.AT_EDGE not in section
    contents = read_contents(catalog, "fair")
    places = [(row["benchmark"], row["eval_length"], row["method"]) for row in contents.own_best]
    assert sorted(places) == [("perplexity", 128, "none"), ("perplexity", 128, "pi")]
    asked = "SELECT method, value FROM benchmark_by_length WHERE NOT frozen"
    values = dict(run_query(catalog, asked)[1])
    for row in contents.own_best:
        assert row["common_score"] == values[row["method"]]
        assert row["own_score"] == values[f"{row['method']}_best"]
        assert row["own_rank"] in (1, 2)
    edge = [{**row, "at_edge": row["chosen"]} for row in contents.trials]
    table = tuning.trials(replace(contents, trials=edge))
    assert [row[-1] for row in table.rows] == [tuning.AT_EDGE] * 2
