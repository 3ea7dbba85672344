"""`faithful` against RULER's first release, recorded as tests/support/ruler/release.py says.

The scorer, on 6,500 published answers of Llama-3.1-8B with STRING at 128K, whose scores RULER's
script gave (github.com/HKUNLP/STRING@216cc2f). Messages precede the JSON lines of each file.
"""

import json
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from lce_core.benchmarks import Prompt
from lce_core.benchmarks.ruler import NEW_TOKENS, match
from lce_core.benchmarks.ruler._documents import QuestionAnswering, read_squad
from lce_core.benchmarks.ruler._drafts import RULER_SEED, Draw
from tests.support.ruler.prompts import request_for, ruler
from tests.support.ruler.release import NUM_RECORDED, RECORDED, WordPieces, digest, release_data

LONG = [key for key in RECORDED if key.endswith("131072")]
"""A task of each kind of haystack and each other task."""
RECORDS = [key for key in RECORDED if key not in LONG]
"""At odd lengths a size fits to the token."""


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict[str, Path]:
    return release_data(tmp_path_factory.mktemp("data"))


def built(task: str, length: int, folders: dict[str, Path]) -> tuple[list[Prompt], list[str]]:
    tokenizer = WordPieces()
    request = request_for(task, length, folders, tokenizer=tokenizer)
    benchmark: Any = ruler(profile="faithful", num_samples=NUM_RECORDED)
    prompts = benchmark.build(request)
    return prompts, [tokenizer.decode(prompt.ids.tolist()) for prompt in prompts]


@pytest.mark.parametrize(
    "key", [*RECORDS, *(pytest.param(key, marks=pytest.mark.slow) for key in LONG)]
)
def test_faithful_prompts_are_those_of_the_first_release_to_the_byte(key, folders):
    recorded, (task, length) = RECORDED[key], key.split()
    prompts, texts = built(task, int(length), folders)
    outer = 2 if task == "vt" else 0  # what joins the example to the task is not counted
    lengths = [len(prompt.ids) - 1 + NEW_TOKENS[task] - outer for prompt in prompts]
    assert lengths == pytest.approx(recorded["lengths"], abs=outer)
    found = [(text, prompt.references) for text, prompt in zip(texts, prompts, strict=True)]
    assert digest(found) == recorded["sha256"]


@pytest.mark.parametrize(("num_documents", "depth"), [(10, 89), (40, 74), (380, 64)])
def test_the_gold_document_lies_at_one_depth_for_each_number_of_documents(
    num_documents, depth, folders
):
    collection = read_squad(folders)
    task = QuestionAnswering(collection, [0, 1, 77, 1499], 131072)
    draw = Draw.of(RULER_SEED, RULER_SEED)
    depths = [task.draft(num_documents, index, draw).depth for index in range(4)]
    assert [round(one or 0) for one in depths] == [depth] * 4


def test_vt_counts_its_references_as_pythons_list_and_is_never_shrunk(folders):
    # 140 blocks and their answer take 4,084 tokens, the list in brackets and quotes 36 more and the
    # bare names 15. At 4,120 RULER would go on to 150 blocks and draw them for ever.
    for length, blocks in ((4096, 130), (4112, 130), (4120, 130), (4128, 140), (16384, 630)):
        _, texts = built("vt", length, folders)
        tasks = [text.split("\n\n\n\n")[1] for text in texts]
        assert {text.count("The grass") for text in tasks} == {blocks}


AVERAGES = {
    "niah_single_1": 100.0,
    "niah_single_2": 100.0,
    "niah_single_3": 100.0,
    "niah_multikey_1": 97.8,
    "niah_multikey_2": 84.8,
    "niah_multikey_3": 80.0,
    "niah_multiquery": 97.9,
    "niah_multivalue": 91.1,
    "vt": 88.08,
    "cwe": 0.08,
    "fwe": 75.13,
    "qa_1": 77.2,
    "qa_2": 48.2,
}
"""Average per task in per cent: STRING's table; for cwe, where the table rounds to 0.0, the mean of
the stored scores."""


@pytest.mark.parametrize("task", AVERAGES)
def test_every_published_score_and_average_is_reproduced(test_data, task):
    text = (test_data / "ruler_predictions" / f"{task}.jsonl").read_text(encoding="utf-8")
    rows = [json.loads(line) for line in text.split("\n") if line.startswith("{")]
    assert len(rows) == 500
    scores = [match(task, row["pred"], row["needle"]) for row in rows]
    assert scores == [pytest.approx(float(row["score"]), abs=1e-12) for row in rows]
    assert round(100 * fmean(scores), 1) == round(AVERAGES[task], 1)
