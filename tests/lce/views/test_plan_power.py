"""`lce plan --power`: what a study can decide, and its documents as the benchmarks count them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from flows.request import compile_request
from flows.selection import select_cells
from flows.settings import make_execution
from lce.cli import app
from lce.views.power import Options, as_json, comparisons, lines, planned_seeds
from lce_core.benchmarks import BENCHMARKS
from lce_core.benchmarks._text.windows import cut_windows
from lce_core.statistics.power import mcnemar_power, mean_power
from lce_core.study.plan import StudyPlan

STUDY: dict[str, Any] = {
    "study": "mine",
    "hypothesis": "none",
    "target_context": 8192,
    "corpus": {"name": "jsonl_folder", "folder": "text", "domain_names": ["code", "prose"]},
    "base_models": ["llama2_7b"],
    "methods": ["none", "pi", "yarn"],
    "evaluation": {"precision": "bf16", "held_out_tokens": 65536},
    "benchmarks": [],
    "seeds": [0, 1, 2],
}


def planned(tmp_path: Path, *benchmarks: dict[str, Any], **changes: Any) -> StudyPlan:
    study = {**STUDY, "benchmarks": list(benchmarks), **changes}
    file = tmp_path / "study.yaml"
    file.write_text(yaml.safe_dump(study), encoding="utf-8")
    execution = make_execution({"home": tmp_path / "home", "device": "cpu", "slots": 1})
    return compile_request(str(file), execution).plan


def told(plan: StudyPlan, **folders: Path) -> list[dict[str, Any]]:
    return as_json(comparisons(plan, folders), planned_seeds(plan), Options())


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


def test_documents_of_the_corpus_limit_what_windows_seem_to_give(tmp_path):
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
    shown = "\n".join(lines(comparisons(plan), 3, Options()))
    chance = mean_power(16, 1.0)
    assert f"n = at most 16): decided with probability {chance:.2f}" in " ".join(shown.split())
    shown = "\n".join(lines(comparisons(plan, {"text": folder}), 3, Options()))
    words = " ".join(shown.split())
    assert words.endswith("n = 5): cannot be decided by this study: a test needs n = 6")
    assert max(map(len, shown.split("\n"))) <= 80


def test_the_mean_over_tasks_of_unequal_number_counts_as_its_variance_says(tmp_path):
    books = {"name": "perplexity_documents", "profile": "faithful", "lengths": [4096]}
    plan = planned(tmp_path, {**books, "domains": [], "data_sets": ["pg19", "govreport"]})
    design = comparisons(plan)[0].test.design
    # Variance of the mean of two means: (1/10 + 1/50) / 4 = 1 / 33.3.
    assert (design.num_clusters, design.num_prompts) == (60, 33)


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
