"""`lce plan --power`: counts of samples against the windows and prompts of benchmarks."""

import json
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
from lce.views.power import Visible, as_json, visible_differences
from lce_core.benchmarks import BENCHMARKS
from lce_core.benchmarks._text.windows import cut_windows
from lce_core.statistics.power import detectable_effect, detectable_share
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


def test_seeds_multiply_prompts_that_they_draw_and_not_text_that_they_share(tmp_path):
    plan = planned(
        tmp_path,
        {"name": "passkey", "lengths": [4096], "num_samples": 40},
        {"name": "perplexity", "profile": "fast", "domains": ["prose"], "lengths": [4096]},
    )
    passkey, perplexity = visible_differences(plan)
    assert (passkey.num_samples, passkey.unit) == (120, "accuracy")
    assert passkey.difference == detectable_share(120)
    assert passkey.difference_of_family == detectable_share(120, alpha=0.05 / 2)
    assert (perplexity.num_samples, perplexity.unit) == (65536 // 4096, "sd")
    assert perplexity.difference == detectable_effect(16)
    assert perplexity.difference_of_family == detectable_effect(16, alpha=0.05 / 2)


def test_a_selection_sees_what_its_own_cells_can_show(tmp_path):
    entry = {"name": "passkey", "lengths": [4096], "num_samples": 40}
    other = {"name": "passkey", "lengths": [4096], "num_samples": 40, "methods": ["none", "pi"]}
    plan = planned(tmp_path, entry)
    (found,) = visible_differences(select_cells(plan, "seed=0,method=none,method=pi"))
    assert (found.num_samples, found.num_comparisons) == (40, 1)
    assert found.difference_of_family == detectable_share(40)
    assert list(visible_differences(select_cells(plan, "method=none"))) == []
    (found,) = visible_differences(planned(tmp_path, other))
    assert (found.num_samples, found.num_comparisons) == (120, 1)


def test_the_mean_over_tasks_of_unequal_number_counts_as_its_variance_says(tmp_path):
    books = {"name": "perplexity_documents", "profile": "faithful", "lengths": [4096]}
    plan = planned(tmp_path, {**books, "domains": [], "data_sets": ["pg19", "govreport"]})
    (one,) = visible_differences(plan)
    assert (one.num_samples, one.tasks) == (60, ("pg19", "govreport"))
    # Variance of the mean of two means: (1/10 + 1/50) / 4 = 1 / 33.3.
    assert one.difference == detectable_effect(33)


@pytest.mark.parametrize("profile", ["faithful", "clean", "fast"])
def test_windows_side_by_side_are_the_blocks_that_perplexity_resamples(profile):
    benchmark = BENCHMARKS.parse({"name": "perplexity", "profile": profile}, "test")
    length, stream = 2048, np.zeros(65536, dtype=np.uint32)
    stride = length if profile == "fast" else 256
    windows = cut_windows(stream, length, stride, drop_last=profile == "faithful")
    blocks = {index * stride // length for index in range(len(windows))}
    assert abs(benchmark.num_independent("prose", length, stream.size) - len(blocks)) <= 1


@pytest.mark.slow
def test_a_shipped_study_is_told_what_it_can_see(tmp_path):
    execution = make_execution({"home": tmp_path / "home", "device": "cpu", "slots": 1})
    plan = compile_request("lceg-llama2-7b", execution).plan
    found = list(visible_differences(plan))
    assert [Visible(**one) for one in as_json(plan)] == found != []
    for one in found:
        assert one.num_samples > 0
        if one.difference_of_family is not None:
            assert one.difference is not None
            assert one.difference_of_family >= one.difference


def test_the_command_adds_it_to_text_and_json(tmp_path, monkeypatch):
    planned(tmp_path, {"name": "passkey", "lengths": [4096], "num_samples": 40})
    monkeypatch.setenv("LCE_HOME", str(tmp_path / "home"))
    command = ["plan", str(tmp_path / "study.yaml")]
    text = CliRunner().invoke(app, [*command, "--power"], catch_exceptions=False).stdout
    assert f"passkey clean 4096 (single; 120 samples): {detectable_share(120):.3f}" in text
    told = CliRunner().invoke(app, [*command, "--power", "--json"], catch_exceptions=False).stdout
    (one,) = json.loads(told)["power"]
    assert (one["benchmark"], one["tasks"], one["num_comparisons"]) == ("passkey", ["single"], 2)
