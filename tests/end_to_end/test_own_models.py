"""A study of two models that are folders of one's own, by the command line."""

from typing import Any

import pytest

from catalog.queries import run_query
from tests.support.architectures import save, tokenizer_with
from tests.support.studies import computed, lce, write_study

pytestmark = pytest.mark.slow

STUDY: dict[str, Any] = {
    "study": "own-models",
    "hypothesis": "Both kinds of model give finite scores.",
    "target_context": 128,
    "train_tokens": 512,
    "corpus": {"name": "jsonl_folder", "domain_names": ["code"], "held_out_percent": 30},
    "base_models": [
        {"name": "hub_model", "label": "grouped"},
        {"name": "hub_model", "label": "partial"},
    ],
    "methods": ["none", {"name": "yarn", "tuned": True}],
    "training": {"learning_rate": 1.0e-3, "tokens_per_step": 256},
    "benchmarks": [
        {"name": "perplexity", "profile": "tiny", "domains": ["code"], "lengths": [64, 128]},
        {"name": "passkey", "profile": "fast", "lengths": [1024], "num_samples": 4},
    ],
    "evaluation": {"held_out_tokens": 4096},
    "seeds": [0],
}
SCORES = """
SELECT base_model, method, frozen, benchmark, eval_length, value FROM scores
WHERE metric IN ('perplexity', 'accuracy', 'strict_accuracy') ORDER BY ALL
"""


def test_two_kinds_of_model_run_and_the_second_time_nothing_is_computed(text, tmp_path):
    home, study = tmp_path / "home", write_study(tmp_path, STUDY)
    ends = tokenizer_with(bos=None, eos="<query-7>")  # as Qwen's: no token begins a text
    save("qwen3", tmp_path / "a", ends, max_position_embeddings=64)
    save("stablelm", tmp_path / "b", max_position_embeddings=64)
    named = [f"--model-folder={name}={tmp_path / place}" for name, place in
             (("grouped", "a"), ("partial", "b"))]  # fmt: skip
    first = lce(home, "worker", study, *text, *named)
    # Rows, held-out text, a checkpoint and two times three cells, for each of two models.
    assert computed(first) == 2 * (3 + 6)
    rows = run_query(home / "catalog.duckdb", SCORES)[1]
    assert {row[0] for row in rows} == {"grouped", "partial"}
    assert len({row[:5] for row in rows}) == 12
    assert computed(lce(home, "worker", study, *text, *named)) == 0
    assert run_query(home / "catalog.duckdb", SCORES)[1] == rows
    half = " ".join(lce(home, "plan", study, *text, named[0]).split())
    assert "x 6 unavailable" in half
    assert ": base model partial: got neither a folder nor a repository" in half
    status = lce(home, "status", study, *text, *named)
    assert "12 done" in status
