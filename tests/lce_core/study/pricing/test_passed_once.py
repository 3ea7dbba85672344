"""What a plan says to pass once is what passes: a run of tiny models is counted beside it.

Tokens are counted where the model embeds them; the plan sees no model at all.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from lce_core.benchmarks.many_shot.trec import TREC
from lce_core.execution import Execution
from lce_core.runners import Runner
from lce_core.store.artifacts import Store
from lce_core.study.plan import StudyPlan, compile_study
from lce_core.study.pricing.passed_once import shares_of_text
from lce_core.study.progress import inspect
from lce_core.study.study_file import parse_study
from lce_core.study.units import units_to_do
from tests.support.architectures import save
from tests.support.data.fixture_data import fixture_folders
from tests.support.data.short_context_rows import made_up

STUDY: dict[str, Any] = {
    "study": "shared",
    "hypothesis": "None.",
    "target_context": 2048,
    "corpus": {"name": "jsonl_folder", "domain_names": ["code"]},
    "base_models": [{"name": "hub_model", "label": "tiny"}],
    "methods": ["none", "dynamic_pi", {"name": "self_extend", "window": 256, "group": 16}],
    "evaluation": {"held_out_tokens": 4096},
    "benchmarks": [
        {"name": "nll_by_position", "lengths": [1024], "domains": ["code"]},
        {"name": "perplexity", "profile": "fast", "stride": 1024, "lengths": [1024, 512, 300],
         "domains": ["code"]},
    ],
    "seeds": [0],
}  # fmt: skip


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save("llama", tmp_path_factory.mktemp("model"), max_position_embeddings=512)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("text")
    for name in range(150):  # documents, a few per cent of which are held out
        lines = (f"Of {i} and {name} the product is {i * name}.\n" for i in range(40))
        (folder / f"{name}.txt").write_text("".join(lines))
    return folder


class Small:
    """The study, planned, and run where it is asked."""

    def __init__(self, tiny: Path, data: dict[str, Path], home: Path, **changes: Any) -> None:
        study = parse_study(yaml.safe_dump({**STUDY, **changes}), "mine.yaml")
        models = {"tiny": tiny}
        self.plan: StudyPlan = compile_study(study, data, models)
        self.store, self.data = Store(home), data
        self.execution = Execution(home=home, model_folders=models, data_folders=data)

    def run(self) -> None:
        self.store.prepare()
        runner = Runner(self.store, self.execution, lambda event: None)
        states = inspect(self.plan, self.store, {**self.data})
        for unit in units_to_do(self.plan, states):
            for step in unit.steps:
                runner.ensure(step)

    def cells(self) -> dict[tuple[str, str, int], tuple[float, float]]:
        """By method, benchmark and length: the share that the plan says, and what passed."""
        shares = shares_of_text(self.plan.steps.values())
        found = {}
        for cell in self.plan.cells:
            assert cell.step is not None
            record = self.store.record(cell.step)
            assert record is not None
            share = shares.get(cell.step.fingerprint, 1.0)
            passed = record.result["passed_tokens"] / record.result["measured"]["tokens"]
            found[cell.method, cell.benchmark, cell.eval_length] = (share, passed)
        return found


def test_windows_of_a_model_pass_once(tiny: Path, text: Path, tmp_path: Path) -> None:
    small = Small(tiny, {"text": text}, tmp_path)
    small.run()
    cells = small.cells()
    for share, passed in cells.values():
        assert share == pytest.approx(passed)
    # All of it is in one pass, save where the table follows the length: beyond the trained context.
    shares = {place: share for place, (share, _) in cells.items()}
    assert [shares["none", "perplexity", length] for length in (1024, 512, 300)] == [0, 0, 0]
    assert [shares["dynamic_pi", "perplexity", length] for length in (1024, 512, 300)] == [0, 1, 0]


def test_in_half_precision_only_equal_lengths_share(tiny: Path, text: Path, tmp_path: Path) -> None:
    evaluation = {"held_out_tokens": 4096, "precision": "bf16"}
    small = Small(tiny, {"text": text}, tmp_path, evaluation=evaluation, methods=["none"])
    small.run()
    cells = small.cells()
    for share, passed in cells.values():
        assert share == pytest.approx(passed)
    assert [cells["none", "perplexity", length][0] for length in (1024, 512, 300)] == [0, 1, 1]


def test_what_prompts_begin_with_passes_once(tiny: Path, text: Path, tmp_path: Path) -> None:
    data = {"text": text, **fixture_folders([TREC], tmp_path)}
    asked = [
        {"name": "needle", "profile": "fast", "haystack": "held_out", "trials": 1,
         "lengths": [2048]},
        {"name": "many_shot", "profile": "fast", "shots": [20], "permutations": 2,
         "num_questions": 5, "lengths": [2000]},
    ]  # fmt: skip
    home = tmp_path / "home"
    small = Small(tiny, data, home, benchmarks=asked, evaluation={"held_out_tokens": 8192})
    small.run()
    shared = Counter[str]()
    for (method, benchmark, _), (share, passed) in small.cells().items():
        shared[benchmark] += share < 1
        # Answers pass too, and where prompts part is a matter of their words.
        if share < 1:
            assert passed == pytest.approx(share, abs=0.15), (method, benchmark)
        else:  # questions of one length have one table and share after all
            assert (method, benchmark) == ("dynamic_pi", "many_shot")
            assert passed < 1.15
    assert shared == {"needle": 3, "many_shot": 2}


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_choices_pass_their_context_once_in_float32_only(
    tiny: Path, text: Path, tmp_path: Path, precision: str
) -> None:
    data = {"text": text, **made_up("hellaswag", tmp_path / "h"), **made_up("piqa", tmp_path / "p")}
    asked = [{"name": "short_context", "profile": "tiny", "lengths": [2048, 900]}]
    evaluation = {"held_out_tokens": 4096, "precision": precision}
    small = Small(tiny, data, tmp_path, benchmarks=asked, evaluation=evaluation, methods=["none"])
    shares = shares_of_text(small.plan.steps.values())
    steps = [cell.step for cell in small.plan.cells if cell.step and cell.step.spec["data"]]
    found = {
        (step.axes["task"], step.axes["eval_length"], shares.get(step.fingerprint))
        for step in steps
    }
    # Prompts of 1,000 tokens are cut at 900. PIQA's contexts are as short as its choices.
    share = 0.273 if precision == "fp32" else None
    others = {("hellaswag", 900, None), ("piqa", 2048, None), ("piqa", 900, None)}
    assert found == {("hellaswag", 2048, share), *others}
