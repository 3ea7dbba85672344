"""`lce plan --power`: what a study can decide, and costs of designs of other sizes."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from flows.plans.pricing import Prices
from flows.request import compile_request
from flows.selection import select_cells
from flows.settings import make_execution
from lce.cli import app
from lce.views import power
from lce.views.designs import Costs, as_json, cheapest, groups, lines
from lce.views.power import Options, comparisons, planned_seeds
from lce_core.benchmarks import BENCHMARKS
from lce_core.benchmarks._text.windows import cut_windows
from lce_core.errors import SpecError
from lce_core.statistics.designs import Design, detectable_difference
from lce_core.statistics.power import mcnemar_power, mean_power
from lce_core.store.artifacts import Store
from lce_core.study.plan import StudyPlan
from lce_core.study.pricing.speed import DEVICE_TYPES

STUDY: dict[str, Any] = {
    "study": "mine",
    "hypothesis": "none",
    "target_context": 8192,
    "train_tokens": 655360,
    "training": {"learning_rate": 2.0e-5, "tokens_per_step": 65536},
    "corpus": {"name": "jsonl_folder", "folder": "text", "domain_names": ["code", "prose"]},
    "base_models": ["llama2_7b"],
    "methods": ["none", "self_extend", {"name": "yarn", "tuned": True},
                {"name": "pi", "tuned": True}, {"name": "ntk_32k", "tuned": True}],
    "evaluation": {"precision": "bf16", "held_out_tokens": 65536},
    "benchmarks": [
        {"name": "passkey", "lengths": [4096, 8192], "num_samples": 40},
        {"name": "perplexity", "profile": "fast", "domains": ["prose"], "lengths": [8192]},
    ],
    "expects": [
        {"better": "yarn-tuned", "than": ["pi-tuned"], "benchmark": "passkey", "claim": "YaRN"},
        {"better": "self_extend", "than": ["none"], "benchmark": "perplexity"},
        {"not_worse": "pi-tuned", "than": ["none"], "benchmark": "passkey", "lengths": [4096],
         "within": "0.15 accuracy"},
        {"predicts": "perplexity", "benchmark": "passkey"},
    ],
    "seeds": [0, 1],
}  # fmt: skip


UNTRAINED = {"methods": ["none", "pi", "yarn"], "seeds": [0, 1, 2], "expects": None}


def planned(tmp_path: Path, *benchmarks: dict[str, Any], **changes: Any) -> StudyPlan:
    """With `benchmarks`, a study without training that has these alone."""
    study = {**STUDY, **UNTRAINED, "benchmarks": [*benchmarks]} if benchmarks else STUDY
    study = {key: value for key, value in {**study, **changes}.items() if value is not None}
    file = tmp_path / "study.yaml"
    file.write_text(yaml.safe_dump(study), encoding="utf-8")
    execution = make_execution({"home": tmp_path / "home", "device": "cpu", "slots": 1})
    return compile_request(str(file), execution).plan


def priced(plan: StudyPlan) -> Prices:
    return Prices(plan, DEVICE_TYPES["h100"])


def test_the_cost_of_a_number_of_seeds_is_that_of_a_plan_with_these_seeds(tmp_path):
    plan = planned(tmp_path)
    for known in (select_cells(plan, "seed=1"), plan):
        costs = Costs(known, priced(known))
        for number in (1, 5):
            other = planned(tmp_path, seeds=[*range(number)])
            whole = priced(other).total(other.expected.values())
            found = costs.of(number, 1)
            assert found["flops"] == pytest.approx(whole.cost.all_flops, rel=1e-6)
            assert found["hours"] == pytest.approx(whole.seconds / 3600, rel=1e-6)
    training, cells = (
        sum(priced(plan).of(one).cost.all_flops for one in plan.expected.values() if one.kind in of)
        for of in (("finetune",), ("cell",))
    )
    assert costs.of(2, 3)["flops"] == pytest.approx(training + 3 * cells)
    assert costs.unit == "H100-hours"


def test_equal_tests_are_a_group(tmp_path):
    tests = comparisons(planned(tmp_path))
    trained, frozen, margin, ranks = groups(tests)
    # Two comparisons of the first entry, one of each other entry, one rank correlation per length.
    alphas = [one.test.alpha for one in (trained, frozen, margin, ranks)]
    assert alphas == [0.05 / 2, 0.05, 0.05, 0.05]
    texts = ("yarn tuned is better than pi tuned on passkey",)
    assert (trained.texts, trained.lengths) == (texts, (4096, 8192))
    assert trained.test.design == margin.test.design == Design(40, 40, True, True, True)
    assert frozen.test.design == Design(8, 8, False, False, False)
    assert ranks.test.design == Design(40, 40, False, True, False)
    assert (frozen.test.unit, margin.test.margin) == ("sd", 0.15)
    on_one_run = [one["one_training_run"] for one in power.as_json(tests, 1, Options())]
    assert on_one_run == [True, False, True, True]
    found = groups(comparisons(planned(tmp_path, expects=None)))
    assert {(one.test.benchmark, one.test.design.is_trained, one.test.alpha) for one in found} == {
        (name, is_trained, 0.05)
        for name in ("passkey", "perplexity")
        for is_trained in (False, True)
    }


def test_the_cheapest_design_detects_the_difference_and_no_cheaper_one_does(tmp_path):
    plan = planned(tmp_path)
    costs, (one, *_) = Costs(plan, priced(plan)), groups(comparisons(plan))
    seeds, times = cheapest(one, costs, 0.2, 1.0)
    assert seeds > 1, "one training run shows nothing about others"
    assert one.detectable(seeds, times, 1.0) <= 0.2
    for other in ((s, t) for s in range(2, 11) for t in (1, 2, 4, 8)):
        if costs.of(*other)["flops"] < costs.of(seeds, times)["flops"]:
            assert (one.detectable(*other, 1.0) or 1) > 0.2
    assert cheapest(one, costs, 1e-4, 1.0) is None


def test_options_need_a_unit_that_the_study_has(tmp_path):
    for wrong in ("0.05", "0 accuracy", "5 %"):
        with pytest.raises(SpecError, match="--detect: got"):
            Options.of(wrong, 1.0)
    with pytest.raises(SpecError, match="--variance-ratio: got -1"):
        Options.of(None, -1)
    plan = planned(tmp_path, expects=STUDY["expects"][:1])
    with pytest.raises(SpecError, match="expected a unit of this study's comparisons: accuracy"):
        list(lines(plan, priced(plan), Options.of("0.5 sd", 1.0), comparisons(plan)))


def test_text_and_json_have_the_same_numbers_in_80_columns(tmp_path, monkeypatch):
    plan = planned(tmp_path)
    shown = [*lines(plan, priced(plan), Options(), comparisons(plan))]
    assert max(map(len, shown)) <= 80
    found = as_json(plan, priced(plan), Options(), comparisons(plan))
    first = found["comparisons"][0]
    values = {(one["seeds"], one["prompts"]): one["difference"] for one in first["detectable"]}
    assert values[3, 2] == detectable_difference(
        Design(40, 40, True, True, True), 3, 2, 0.05 / 2, 1.0
    )
    row = next(
        line
        for line in shown[shown.index("  - yarn tuned is better than pi tuned on passkey") :]
        if "prompts x2" in line
    )
    assert row.split()[2:] == [
        "none" if values[n, 2] is None else f"{values[n, 2]:.3f}{'*' * (n == 1)}"
        for n in (1, 2, 3, 5, 8)
    ]
    monkeypatch.setenv("LCE_HOME", str(tmp_path / "home"))
    command = ["plan", str(tmp_path / "study.yaml"), "--detect", "0.1 accuracy", "--json"]
    told = CliRunner().invoke(app, command, catch_exceptions=False).stdout
    (cheap,) = json.loads(told)["designs"]["comparisons"][0]["cheapest"]
    assert cheap["difference"] == 0.1
    assert cheap["seeds"] > 1


@pytest.mark.slow
def test_no_design_has_more_books_or_rows_than_the_data_set(tmp_path):
    folders = {name: tmp_path / name for name in ("pg19", "longbench")}
    for folder in folders.values():
        folder.mkdir()
    for number in range(7):
        (folders["pg19"] / f"{number}.txt").write_text("Once upon a time. " * 3000)
    (folders["longbench"] / "trec.jsonl").write_text("")
    (folders["longbench"] / "subset.json").write_text('{"trec.jsonl": 80}')
    books = {"name": "perplexity_documents", "profile": "fast", "domains": [], "lengths": [8192]}
    plan = planned(
        tmp_path,
        methods=["none", "self_extend"],
        expects=None,
        benchmarks=[
            {**books, "data_sets": ["pg19"], "max_documents": 5},
            {"name": "longbench", "tasks": ["trec"], "lengths": [8192], "num_samples": 50},
            {"name": "ruler", "tasks": ["qa_1"], "lengths": [8192], "num_samples": 2000},
            {"name": "passkey", "lengths": [8192], "num_samples": 40},
        ],
    )
    found = comparisons(plan, folders)
    known = {one.test.benchmark: one for one in groups(found)}
    limits = {
        name: (one.test.design.num_prompts, one.test.most_times) for name, one in known.items()
    }
    assert limits == {
        "perplexity_documents": (5, 7 / 5),
        "longbench": (50, 80 / 50),
        "ruler": (2000, 5928 / 2000),
        "passkey": (40, math.inf),
    }
    assert known["ruler"].detectable(1, 2, 1.0) is not None
    for name in ("perplexity_documents", "longbench"):
        assert known[name].detectable(1, 2, 1.0) is None
    costs = Costs(plan, priced(plan))
    assert cheapest(known["passkey"], costs, 0.1, 1.0) is not None
    assert cheapest(known["longbench"], costs, 0.1, 1.0) is None
    shown = "\n".join(lines(plan, priced(plan), Options(), found))
    assert "at most 1.6 times the planned prompts" in shown
    assert "published size is assumed: squad" in shown
    fewer = planned(
        tmp_path, expects=None, methods=["none", "self_extend"],
        benchmarks=[{**books, "data_sets": ["pg19"]}],
    )  # fmt: skip
    for known_folders, number in ((folders, 7), ({}, 100)):
        (one,) = comparisons(fewer, known_folders)
        assert one.test.design.num_clusters == number


def told(plan: StudyPlan, **folders: Path) -> list[dict[str, Any]]:
    return power.as_json(comparisons(plan, folders), planned_seeds(plan), Options())


def test_seeds_multiply_prompts_that_they_draw_and_not_text_that_they_share(tmp_path):
    plan = planned(
        tmp_path,
        {"name": "passkey", "lengths": [4096], "num_samples": 40},
        {"name": "perplexity", "profile": "fast", "domains": ["prose"], "lengths": [4096]},
        expects=[
            {"better": "yarn", "than": ["none", "pi"], "benchmark": "passkey"},
            {"better": "yarn", "than": ["pi"], "benchmark": "perplexity"},
            {"predicts": "perplexity", "benchmark": "passkey", "among": ["none", "yarn"]},
        ],
    )
    passkey, perplexity, ranks = told(plan)
    assert (passkey["num_independent"], passkey["alpha"]) == ([40, 40], 0.05 / 2)
    assert passkey["probability"] == mcnemar_power(120, 0.2, alpha=0.05 / 2)
    assert (perplexity["num_independent"], perplexity["alpha"]) == ([65536 // 4096], 0.05)
    assert ranks["undecidable"] == "fewer than 3 methods at 4096 tokens"
    one = told(select_cells(plan, "seed=1,method=yarn,method=pi"))[0]
    assert one["probability"] == mcnemar_power(40, 0.2, alpha=0.05 / 2)


def test_the_last_of_several_looks_has_its_part_of_the_level(tmp_path):
    plan = planned(
        tmp_path,
        {"name": "passkey", "lengths": [4096], "num_samples": 40},
        expects=[{"better": "yarn", "than": ["none"], "benchmark": "passkey"}],
        looks=[2, 3],
    )
    # 1.96 / sqrt(2/3) is a normal quantile of 0.0164 on both sides, spent at the first look.
    (passkey,) = told(plan)
    assert passkey["alpha"] == pytest.approx(0.05 - 0.01637, abs=1e-5)
    assert passkey["probability"] < mcnemar_power(120, 0.2, alpha=0.05)


def test_an_entry_without_a_share_of_its_own_has_that_of_the_entries_before_it(tmp_path):
    expects = [
        {"better": "yarn", "than": [other], "benchmark": "passkey", "weight": weight}
        for other, weight in (("none", 1.0), ("pi", 0.0))
    ]
    plan = planned(
        tmp_path, {"name": "passkey", "lengths": [4096], "num_samples": 40}, expects=expects
    )
    assert [one["alpha"] for one in told(plan)] == [0.05, 0.05]
    assert [*lines(plan, priced(plan), Options(), comparisons(plan))]


def test_documents_of_the_corpus_limit_what_windows_seem_to_give(tmp_path, monkeypatch):
    """Seven held-out documents of 9,000 to 15,000 bytes, of which windows start in five."""
    entry = {"name": "perplexity", "profile": "fast", "domains": ["prose"], "max_tokens": 16384}
    changes = {
        "expects": [{"better": "yarn", "than": ["pi"], "benchmark": "perplexity"}],
        "corpus": {**STUDY["corpus"], "held_out_percent": 99},
    }
    plan = planned(tmp_path, {**entry, "lengths": [1024]}, **changes)
    folder = tmp_path / "data"
    (folder / "prose").mkdir(parents=True)
    for number in range(7):
        (folder / "prose" / f"{number}.txt").write_text("Once upon a time. " * (500 + 60 * number))
    unread, read = told(plan), told(plan, text=folder)
    assert (unread[0]["num_independent"], unread[0]["undecidable"]) == ([16], None)
    assert (read[0]["num_independent"], read[0]["undecidable"]) == ([5], "a test needs n = 6")
    shown = "\n".join(power.lines(comparisons(plan), 3, Options()))
    chance = mean_power(16, 1.0)
    assert f"n = at most 16): decided with probability {chance:.2f}" in " ".join(shown.split())
    shown = "\n".join(power.lines(comparisons(plan, {"text": folder}), 3, Options()))
    words = " ".join(shown.split())
    assert words.endswith("n = 5): cannot be decided by this study: a test needs n = 6")
    assert max(map(len, shown.split("\n"))) <= 80
    home, arguments = tmp_path / "home", [str(tmp_path / "study.yaml")]
    arguments += ["--data-folder", f"text={folder}"]
    Store(home).studies.save_plan("mine", {**plan.to_json(), "arguments": arguments}, "study.yaml")
    monkeypatch.setenv("LCE_HOME", str(home))
    command = ["plan", "mine", "--power", "--json"]
    shown = CliRunner().invoke(app, command, catch_exceptions=False).stdout
    assert json.loads(shown)["power"] == read


@pytest.mark.parametrize(
    ("entries", "numbers"),
    [
        # Variance of the mean of two means: (1/10 + 1/50) / 4 = 1 / 33.3.
        ([{"data_sets": ["pg19", "govreport"]}], (60, 33)),
        ([{"data_sets": ["pg19"], "max_documents": 7}, {"data_sets": ["govreport"]}], (57, 24)),
    ],
)
def test_the_mean_over_tasks_of_unequal_number_counts_as_its_variance_says(
    entries, numbers, tmp_path
):
    books = {"name": "perplexity_documents", "profile": "faithful"}
    changed = ({**books, "domains": [], "lengths": [4096], **entry} for entry in entries)
    plan = planned(tmp_path, *changed)
    test = comparisons(plan)[0].test
    assert (test.design.num_clusters, test.design.num_prompts) == numbers
    assert test.assumed == ("govreport", "pg19")


@pytest.mark.parametrize("profile", ["faithful", "clean", "fast"])
def test_windows_side_by_side_are_the_blocks_that_perplexity_resamples(profile):
    benchmark = BENCHMARKS.parse({"name": "perplexity", "profile": profile}, "test")
    length, stream = 2048, np.zeros(65536, dtype=np.uint32)
    stride = length if profile == "fast" else 256
    windows = cut_windows(stream, length, stride, drop_last=profile == "faithful")
    blocks = {index * stride // length for index in range(len(windows))}
    assert abs(benchmark.num_independent("prose", length, stream.size) - len(blocks)) <= 1


@pytest.mark.parametrize(
    ("entry", "warns"),
    [
        ({"name": "perplexity"}, True),
        ({"name": "nll_by_position"}, True),
        ({"name": "perplexity", "begin": True}, False),
        ({"name": "nll_by_position", "begin": True}, False),
        ({"name": "perplexity_documents"}, False),
    ],
)
def test_the_command_warns_of_text_without_the_begin_token(entry, warns, tmp_path, monkeypatch):
    entry = {**entry, "profile": "tiny", "domains": ["prose"], "lengths": [256]}
    planned(tmp_path, entry, base_models=["gemma3_270m_q4"], target_context=65536)
    monkeypatch.setenv("LCE_HOME", str(tmp_path / "home"))
    command = ["plan", str(tmp_path / "study.yaml")]
    words = " ".join(CliRunner().invoke(app, command, catch_exceptions=False).stdout.split())
    warning = f"warning: {entry['name']} gives gemma3_270m_q4 windows without the beginning-of-text"
    assert (warning in words) == warns


def test_the_command_says_that_one_training_run_is_one(tmp_path, monkeypatch):
    tuned = {"name": "yarn", "tuned": True}
    planned(
        tmp_path,
        {"name": "passkey", "lengths": [4096], "num_samples": 40},
        methods=["none", tuned],
        expects=[{"better": "yarn-tuned", "than": ["none"], "benchmark": "passkey"}],
        train_tokens=655360,
        training={"learning_rate": 2.0e-5, "tokens_per_step": 65536},
        seeds=[0],
    )
    monkeypatch.setenv("LCE_HOME", str(tmp_path / "home"))
    command = ["plan", str(tmp_path / "study.yaml")]
    text = CliRunner().invoke(app, [*command, "--power"], catch_exceptions=False).stdout
    chance = mcnemar_power(40, 0.2)
    words = " ".join(text.split())
    assert f"probability {chance:.2f} at 0.2 accuracy, on one training run only" in words
    one_seed = "one seed: results of trained methods hold for one training run only\n"
    assert one_seed in text
    planned(tmp_path, {"name": "passkey", "lengths": [4096]}, seeds=[0])
    assert one_seed not in CliRunner().invoke(app, command, catch_exceptions=False).stdout
