"""RULER's cells through a model: answers, early stops, real data, key tokens, and what a plan says.

A toy model with random weights; what it answers does not matter, only how that is scored.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from flows.settings import STUDIES
from lce_core.benchmarks import CellRequest
from lce_core.contracts.toy_text import STORY, Streams
from lce_core.extension.extending import extend
from lce_core.methods import METHODS
from lce_core.study.plan import compile_study
from lce_core.study.study_file import parse_study
from tests.support.ruler.prompts import BYTES, TOY, prompts_of, request_for, ruler, stand_in_data


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return stand_in_data(tmp_path_factory.mktemp("data"))


# Through a model


def _cell(task: str, length: int, folders: dict[str, Path], **changes: Any) -> CellRequest:
    model = extend(TOY.initialise(2).eval(), TOY, METHODS.parse({"name": "none"}, "test"), target=9)
    return request_for(task, length, folders, model=model, tokenizer=BYTES, **changes)


def test_every_sample_is_scored_by_its_own_references(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def answers(request: CellRequest, prompts: Any, **_: Any) -> list[str]:
        return [prompt.references[0] for prompt in prompts]

    monkeypatch.setattr("lce_core.benchmarks._prompted.benchmark.text_answers", answers)
    for task, expected in (("niah_single_1", 1.0), ("niah_multivalue", 0.25), ("qa_1", 1.0)):
        result = ruler(num_samples=5).evaluate(request_for(task, 1500, folders))
        (score,) = result.scores
        assert score.value == pytest.approx(expected)
        assert [sample.score for sample in result.samples] == pytest.approx([expected] * 5)
        assert result.num_tokens == sum(sample.num_prompt_tokens for sample in result.samples)
        assert {sample.cluster is None for sample in result.samples} == {task != "qa_1"}


def test_held_out_text_takes_the_place_of_essays() -> None:
    stream = np.frombuffer((STORY * 20).encode(), dtype=np.uint8).astype(np.uint32)
    request = _cell("niah_single_2", 1500, {}, held_out=Streams({"prose": stream}))
    (prompt, *_) = prompts_of(request, haystack="held_out")
    text = BYTES.decode(prompt.ids)
    assert text.count("Rain fell on the hills.") > 5
    other = replace(request, held_out=Streams({"prose": stream[::-1].copy()}))
    assert BYTES.decode(prompts_of(other, haystack="held_out")[0].ids) != text


# Key tokens


def test_token_prompts_ask_each_family_that_was_hidden() -> None:
    rng = np.random.default_rng(4)
    stream = Streams({"prose": rng.integers(256, size=3000).astype(np.uint32)})
    for task, (keys, queries) in {
        "niah_single_1": (1, 1),
        "niah_single_2": (1, 1),
        "niah_multikey_1": (4, 1),
        "niah_multikey_2": (8, 1),
        "niah_multiquery": (4, 4),
    }.items():
        request = _cell(task, 200, {}, held_out=stream)
        tiny = ruler(profile="tiny", num_samples=6)
        prompts = tiny.prompts(request)  # type: ignore[attr-defined]
        groups = [prompts[first : first + queries] for first in range(0, 6 * queries, queries)]
        assert len(prompts) == 6 * queries
        for group in groups:
            assert len(group) == queries
            assert len({prompt.ids[:-1].tobytes() for prompt in group}) == 1
            for prompt in group:
                assert len(prompt.ids) == 199
                hidden = prompt.ids[:-1][prompt.ids[:-1] >= 256]
                assert len(hidden) == keys
                answer = BYTES.convert_tokens_to_ids(prompt.reference)
                assert answer in hidden
                assert (answer - 256) // 16 == prompt.ids[-1] - 384
            assert len({int(prompt.ids[-1]) for prompt in group}) == queries
        noise = "The grass is green" in BYTES.decode(groups[0][0].ids)
        assert noise == (task in ("niah_single_1", "niah_multikey_2"))
        result = tiny.evaluate(request)
        assert result.num_tokens == 6 * queries * 199
        assert len(result.samples) == 6


def test_a_plan_leaves_out_only_the_tasks_whose_data_are_absent(folders: dict[str, Path]) -> None:
    study = {
        **yaml.safe_load((STUDIES / "smoke.yaml").read_text(encoding="utf-8")),
        "methods": [{"name": "none"}],
        "benchmarks": [{"name": "ruler", "lengths": [9000], "tasks": ["vt", "qa_1", "qa_2"]}],
    }
    squad = {"squad": folders["squad"]}
    cells = compile_study(parse_study(json.dumps(study), "ruler.yaml"), squad).cells
    reasons = {cell.task: cell.unavailable for cell in cells}
    assert reasons["vt"] is reasons["qa_1"] is None
    assert "hotpotqa" in str(reasons["qa_2"])
    again = compile_study(parse_study(json.dumps(study), "ruler.yaml"), folders).cells
    ids = [{c.task: c.step.fingerprint for c in plan if c.step} for plan in (cells, again)]
    assert ids[0].items() < ids[1].items()
