"""Every benchmark over published data by the command line, from folders to rows of the catalog.

One small study of an all but untrained model is run once; each test asks its catalog or its plan.
"""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from catalog.queries import run_query
from lce_core.benchmarks import BENCHMARKS, CellData
from lce_core.benchmarks._text.documents import document_tokens
from lce_core.models import MODELS
from tests.support.studies import lce, write_study

pytestmark = pytest.mark.slow

TEXT: dict[str, Any] = {
    "profile": "fast",
    "max_tokens": 16384,
    "domains": [],
    "data_sets": ["pg19", "proof_pile", "govreport"],
}
STUDY: dict[str, Any] = {
    "study": "trial",
    "hypothesis": "Every benchmark gives a finite score over data in its published form.",
    "target_context": 256,
    "corpus": {"name": "jsonl_folder", "text_field": "input", "held_out_percent": 30},
    "base_models": [{"name": "toy_llama", "steps": 10}],
    "methods": ["none"],
    "evaluation": {"held_out_tokens": 16384},
    "benchmarks": [
        {"name": "perplexity", "lengths": [512], "stride": 256, "last": 64, **TEXT},
        {"name": "perplexity_documents", "lengths": [512], "stride": 256, **TEXT},
        {"name": "nll_by_position", "lengths": [512], **TEXT},
        {"name": "needle", "profile": "fast", "trials": 1, "lengths": [1024]},
        {
            "name": "ruler",
            "profile": "fast",
            "tasks": ["niah_single_2", "qa_1"],
            "num_samples": 4,
            "questions": "xquad",
            "lengths": [8192],
        },
        {
            "name": "many_shot",
            "profile": "fast",
            "shots": [10],
            "permutations": 2,
            "num_questions": 5,
            "lengths": [2048],
        },
        {
            "name": "longbench",
            "profile": "fast",
            "tasks": ["multi_news"],
            "num_samples": 3,
            "lengths": [2048],
        },
        {"name": "short_context", "profile": "tiny", "tasks": ["piqa"], "lengths": [2048]},
    ],
    "seeds": [0],
}


READ = {
    "pg19": 3,
    "proof_pile": 3,
    "govreport": 3,
    "essays": 2,
    "xquad": 1,
    "trec": 1,
    "longbench": 1,
    "piqa": 1,
}
"""Tasks that read each data set."""


def trial(folder: Path) -> str:
    # By way of JSON, because a study takes no aliases and TEXT occurs three times.
    return write_study(folder, json.loads(json.dumps(STUDY)))


def named(folders: dict[str, Path]) -> list[str]:
    return [part for name, at in folders.items() for part in ("--data-folder", f"{name}={at}")]


@pytest.fixture(scope="module")
def folders(test_data, tmp_path_factory) -> dict[str, Path]:
    """The files under the names of the data sets; speeches as rows, and the first essays only.

    The study is trained on the speeches, which it reads as `text`.
    """
    made = tmp_path_factory.mktemp("data")
    speeches = sorted((test_data / "speeches").glob("*.txt"))
    rows = [{"input": speech.read_text(encoding="latin-1")} for speech in speeches]
    (made / "govreport").mkdir()
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (made / "govreport" / "test.jsonl").write_text(lines, encoding="utf-8")
    (made / "essays").mkdir()
    whole = json.loads((test_data / "essays" / "PaulGrahamEssays.json").read_text(encoding="utf-8"))
    part = json.dumps({"text": whole["text"][:200_000]})
    (made / "essays" / "PaulGrahamEssays.json").write_text(part, encoding="utf-8")
    published = {"pg19": "books", "proof_pile": "math"}
    return {
        "text": made / "govreport",
        **{name: made / name for name in ("govreport", "essays")},
        **{name: test_data / folder for name, folder in published.items()},
        **{name: test_data / name for name in ("xquad", "trec", "longbench", "piqa")},
    }


@pytest.fixture(scope="module")
def finished(folders, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("trial")
    lce(folder / "home", "worker", trial(folder), *named(folders))
    return folder / "home" / "catalog.duckdb"


def test_every_cell_is_done_with_finite_scores(finished):
    sql = (
        "SELECT benchmark, task, count(DISTINCT c.cell), count(s.value),"
        " bool_and(isfinite(s.value)), any_value(c.status), any_value(c.reason)"
        " FROM cells c LEFT JOIN scores s USING (benchmark, task) GROUP BY ALL ORDER BY ALL"
    )
    _, rows = run_query(finished, sql)
    assert len(rows) == sum(READ.values())
    for *cell, cells, values, finite, status, reason in rows:
        assert (cells, status, reason) == (1, "done", None), cell
        assert values > 0, cell
        assert finite, cell


def test_samples_have_what_was_said_and_what_was_asked_for(finished):
    sql = (
        "SELECT c.benchmark, c.task, count(*), count(s.reference), count(s.prediction),"
        " sum(s.num_prompt_tokens) > 0 FROM samples s JOIN cells c USING (cell)"
        " GROUP BY ALL"
    )
    found = {(name, task): rest for name, task, *rest in run_query(finished, sql)[1]}
    expected = {
        ("needle", "single"): 10,
        ("ruler", "niah_single_2"): 4,
        ("ruler", "qa_1"): 4,
        ("many_shot", "shots_10"): 10,
        ("longbench", "multi_news"): 3,
        ("short_context", "piqa"): 20,
    }
    for place, number in expected.items():
        assert found.pop(place) == [number, number, number, True], place
    assert len(found) == 9
    for place, (number, references, predictions, lengths) in found.items():
        assert references == number >= 31, place  # documents; 16,384 tokens are 32 windows or more
        assert (predictions, lengths) == (0, True), place


def test_what_a_cell_reads_is_in_its_identity(finished, folders):
    sql = "SELECT c.benchmark, c.task, a.spec FROM cells c JOIN artifacts a ON a.artifact = c.cell"
    _, rows = run_query(finished, sql)
    assert rows
    for name, task, spec in rows:
        identity = json.loads(spec)
        benchmark = BENCHMARKS.from_identity(identity["benchmark"])
        assert identity["data"] == benchmark.digest(task, folders), (name, task)


def test_predicted_tokens_and_flops_are_within_15_per_cent_of_the_measured(finished):
    sql = "SELECT benchmark, task, tokens, flops, predicted_tokens, predicted_flops FROM cells"
    _, rows = run_query(finished, sql)
    for name, task, tokens, flops, predicted_tokens, predicted_flops in rows:
        assert predicted_tokens == pytest.approx(tokens, rel=0.15), (name, task)
        assert predicted_flops == pytest.approx(flops, rel=0.15), (name, task)


def test_measured_flops_are_those_of_the_samples_by_hand(finished: Path) -> None:
    # 2 layers of width 96 with 256 in the MLP, 392 tokens in the vocabulary: docs of toy_llama.
    weights = 2 * (4 * 96 * 96 + 3 * 96 * 256) + 96 * 392
    sql = (
        "SELECT c.benchmark, any_value(c.flops), list(s.num_prompt_tokens)"
        " FROM samples s JOIN cells c USING (cell)"
        " WHERE c.benchmark <> 'short_context' GROUP BY c.benchmark, c.cell"
    )
    for name, flops, lengths in run_query(finished, sql)[1]:
        by_hand = sum(2 * weights * n + 2 * 2 * 96 * n * n for n in lengths)
        assert math.isclose(flops, by_hand, rel_tol=1e-9), name


def test_predictions_for_llama_are_near_what_its_tokenizer_was_counted_to_make(
    folders: dict[str, Path],
) -> None:
    # 21.7 tokens an example of TREC and 33 around them; 282 thousand for the book 18304; 1.47 for
    # each of multi_news' 2113 words.
    llama = MODELS.load("llama2_7b")()
    shots = BENCHMARKS.load("many_shot").model_validate({"profile": "faithful"})
    expected = shots.data_sequences(CellData(llama, "shots_1000", 32768, folders))
    assert expected is not None
    assert expected.num_tokens == pytest.approx(200 * 21762, rel=0.15)
    news = BENCHMARKS.load("longbench").model_validate({"profile": "faithful"})
    expected = news.data_sequences(CellData(llama, "multi_news", 32768, folders))
    assert expected is not None
    assert expected.num_tokens == pytest.approx(200 * 1.47 * 2113, rel=0.15)
    books = document_tokens(llama, "pg19", folders)
    assert max(books) == pytest.approx(282_000, rel=0.15)
