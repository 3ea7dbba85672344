"""What a plan says to pass once is what passes: a run of tiny models is counted beside it."""

from collections import Counter
from pathlib import Path

import pytest

from lce_core.benchmarks.many_shot.trec import TREC
from lce_core.study.pricing.passed_once import shares_of_text
from tests.support.architectures import save
from tests.support.data.fixture_data import fixture_folders
from tests.support.data.short_context_rows import made_up
from tests.support.small_study import Small, written_text


@pytest.fixture(scope="module")
def tiny(tmp_path_factory) -> Path:
    return save("llama", tmp_path_factory.mktemp("model"), max_position_embeddings=512)


@pytest.fixture(scope="module")
def text(tmp_path_factory) -> Path:
    return written_text(tmp_path_factory.mktemp("text"))


def cells(small: Small) -> dict[tuple[str, str, int], tuple[float, float]]:
    """By method, benchmark and length: the share that the plan says, and what passed."""
    shares = shares_of_text(small.plan.steps.values())
    found = {}
    for cell in small.plan.cells:
        assert cell.step is not None
        record = small.store.record(cell.step)
        assert record is not None
        share = shares.get(cell.step.fingerprint, 1.0)
        passed = record.result["passed_tokens"] / record.result["measured"]["tokens"]
        found[cell.method, cell.benchmark, cell.eval_length] = (share, passed)
    return found


HALF = {"evaluation": {"held_out_tokens": 4096, "precision": "bf16"}, "methods": ["none"]}


# All of it is in one pass, save where the table follows the length, beyond the trained context; in
# half precision only equal lengths share.
@pytest.mark.parametrize(
    ("changes", "shares"),
    [({}, {"none": [0, 0, 0], "dynamic_pi": [0, 1, 0]}), (HALF, {"none": [0, 1, 1]})],
)
def test_windows_of_a_model_pass_once(changes, shares, tiny, text, tmp_path):
    small = Small(tiny, {"text": text}, tmp_path, **changes)
    small.run()
    by_cell = cells(small)
    for share, passed in by_cell.values():
        assert share == pytest.approx(passed)
    for method, expected in shares.items():
        found = [by_cell[method, "perplexity", length][0] for length in (1024, 512, 300)]
        assert found == expected


def test_what_prompts_begin_with_passes_once(tiny, text, tmp_path):
    data = {"text": text, **fixture_folders([TREC], tmp_path)}
    asked = [
        {"name": "needle", "profile": "fast", "haystack": "held_out", "trials": 1,
         "lengths": [2048]},
        {"name": "many_shot", "profile": "fast", "shots": [20], "permutations": 2,
         "num_questions": 5, "lengths": [2000]},
    ]  # fmt: skip
    changes = {"evaluation": {"held_out_tokens": 8192}, "methods": ["none", "dynamic_pi"]}
    small = Small(tiny, data, tmp_path / "home", benchmarks=asked, **changes)
    small.run()
    shared = Counter[str]()
    for (method, benchmark, _), (share, passed) in cells(small).items():
        shared[benchmark] += share < 1
        # Answers pass too, and where prompts part is a matter of their words.
        if share < 1:
            assert passed == pytest.approx(share, abs=0.15), (method, benchmark)
        else:  # questions of one length have one table and share after all
            assert (method, benchmark) == ("dynamic_pi", "many_shot")
            assert passed < 1.15
    assert shared == {"needle": 2, "many_shot": 1}


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_choices_pass_their_context_once_in_float32_only(tiny, text, tmp_path, precision):
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
