"""Published files are whole: every reader counts their rows, and a part has to be stated."""

import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lce_core.benchmarks._data import SUBSET, read_rows
from lce_core.benchmarks.long_eval import published_prompts
from lce_core.benchmarks.longbench.tasks import TASKS as LONGBENCH
from lce_core.benchmarks.many_shot.trec import trec_questions
from lce_core.benchmarks.ruler._documents import NUM_QUESTIONS, XQUAD, read_squad
from lce_core.benchmarks.short_context.data import TASKS as ID_DIGITS
from lce_core.contracts.benchmark_cases import words_tokenizer
from lce_core.errors import DataError
from tests.support.cells import benchmark, request
from tests.support.data.fixture_data import fixture_folders
from tests.support.data.short_context_rows import made_up, toy_request
from tests.support.data.subsets import state_rows


def _longbench(folder: Path) -> int:
    asked = benchmark("longbench", profile="clean")
    cell = request(asked, 600, task="multi_news", data_folders={"longbench": folder})
    return len(asked.rows(cell))


def _long_eval(folder: Path) -> int:
    cell = request(benchmark("long_eval"), 40_000, data_folders={"long_eval": folder})
    return len(published_prompts(cell))


def _trec(folder: Path) -> int:
    return sum(map(len, trec_questions({"trec": folder})))


def _xquad(folder: Path) -> int:
    return len(read_squad({"xquad": folder}, XQUAD).questions)


def _piqa(folder: Path) -> int:
    asked = benchmark("short_context", num_samples=1)
    return len(asked.evaluate(toy_request(data_folders={"piqa": folder})).samples)


PIQA = "piqa/valid.jsonl piqa/valid-labels.lst"


def _first(lines: int, *files: Path) -> None:
    for file in files:
        kept = file.read_bytes().split(b"\n")[:lines]
        file.write_bytes(b"\n".join(kept) + b"\n")


def _first_articles(file: Path) -> None:
    content = json.loads(file.read_text(encoding="utf-8"))
    file.write_text(json.dumps(content | {"data": content["data"][:10]}), encoding="utf-8")


def _twice_the_first(file: Path) -> None:
    lines = file.read_bytes().rstrip(b"\n").split(b"\n")
    file.write_bytes(b"\n".join([*lines, lines[0]]))


@pytest.mark.parametrize(
    ("read", "files", "cut", "part", "got", "published"),
    [
        (_longbench, "longbench/multi_news.jsonl", partial(_first, 37), "", 37, 200),
        (_longbench, "longbench/multi_news.jsonl", _twice_the_first, "", 201, 200),
        (_long_eval, "longeval/200_lines.jsonl", partial(_first, 37), "", 37, 50),
        (_trec, "trec/test.txt trec/train.txt", partial(_first, 499), "train.txt", 499, 5452),
        (_xquad, "xquad/xquad.en.json", _first_articles, "", 274, 1190),
        (_piqa, PIQA, partial(_first, 37), "validation", 37, 1838),
    ],
)
def test_a_file_that_is_not_whole_is_refused_unless_that_is_stated(
    read, files, cut, part, got, published, test_data, tmp_path
):
    copies = [Path(shutil.copy(test_data / name, tmp_path)) for name in files.split()]
    part = part or copies[0].name
    assert read(tmp_path)
    cut(*copies)
    with pytest.raises(DataError) as error:
        read(tmp_path)
    assert f": {part}: got {got} rows; expected all {published:,} rows; get it" in str(error.value)
    assert f'write {{"{part}": {got}}} into the file {SUBSET} in its' in str(error.value)
    state_rows(tmp_path, {part: got})
    if part == "train.txt":
        state_rows(tmp_path, {"test.txt": 499})
    assert read(tmp_path)
    state_rows(tmp_path, {part: got + 1})
    with pytest.raises(DataError, match=f"got {got} rows; expected all {got + 1} rows"):
        read(tmp_path)


NOT_AS_PUBLISHED: dict[tuple[str, str, str], list[tuple[dict[str, Any], str]]] = {
    ("longbench", "trec", "trec.jsonl"): [
        ({"answers": []}, r"trec\.jsonl: row 1: column 'answers': got \[\]"),
        ({"context": 3}, "row 1: column 'context': got 3"),
        ({"all_classes": "Food"}, "row 1: column 'all_classes': got 'Food'"),
    ],
    ("longbench_v2", "short", "data.json"): [
        ({"answer": "E"}, "answer"),
        ({"length": "huge"}, "length"),
        ({"question": 7}, "question"),
    ],
    ("long_eval", "lines", "4_lines.jsonl"): [
        ({"random_idx": ["a"]}, r"4_lines\.jsonl: row 1: "),
        ({"expected_number": "many"}, "row 1: "),
        ({"prompt": None}, "row 1: "),
    ],
    ("mrcr", "needles_2", "2needle/2needle_0.parquet"): [
        ({"desired_msg_index": 2}, r"2needle_0\.parquet: row 1: got .*message"),
        ({"desired_msg_index": None}, "row 1: got .*message"),
        ({"prompt": "[1]"}, "row 1: got .*message"),
        ({"prompt": "no JSON"}, "row 1: got .*message"),
        ({"answer": None}, "row 1: got .*message"),
    ],
    ("nolima", "onehop", "needlesets/needle_set.json"): [
        ({"character_set": ["Quentin"]}, "1 characters"),
        ({"needle": "Nobody slept."}, "Nobody slept"),
        ({"tests": {"T1": {}}}, "input_args"),
        ({"questions": {}}, "no question onehop"),
    ],
}
"""Changes of the rows of a benchmark's file, and what is said about them."""


def _change(file: Path, change: dict[str, Any]) -> None:
    rows = [row | change for row in read_rows(file, ())]
    if file.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), file)
    elif file.suffix == ".json":
        file.write_text(json.dumps(rows), encoding="utf-8")
    else:
        file.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")


@pytest.mark.parametrize(
    ("place", "change", "words"),
    [(place, *one) for place, changes in NOT_AS_PUBLISHED.items() for one in changes],
    ids=str,
)
def test_a_row_that_is_not_as_published_is_named(place, change, words, tmp_path):
    name, task, file = place
    asked = benchmark(name, **({"cases": "published"} if name == "long_eval" else {}))
    folders = fixture_folders(asked.reads(task), tmp_path)
    (folder,) = folders.values()
    _change(folder / file, change)
    settings = {"task": task, "tokenizer": words_tokenizer(), "data_folders": folders}
    with pytest.raises(DataError, match=words):
        asked.build(request(asked, 8000, **settings))


def test_splits_are_counted_over_all_files_and_subjects(tmp_path):
    folders = made_up("mmlu", tmp_path)
    asked = benchmark("short_context", num_samples=1)
    (tmp_path / SUBSET).unlink()
    with pytest.raises(DataError, match=r": test: got 114 rows; expected all"):
        asked.evaluate(toy_request(2048, task="mmlu", data_folders=folders))


def test_a_cell_says_that_its_data_are_a_part(tmp_path):
    asked, folders = benchmark("longbench"), {"longbench": tmp_path}
    assert asked.data_names("qasper", folders) == ("longbench",)
    state_rows(tmp_path, {"qasper.jsonl": 4})
    assert asked.data_names("qasper", folders) == ("longbench (subset)",)


@pytest.mark.parametrize("content", ["[4]", "{", '{"qasper.jsonl": true}'])
def test_a_statement_without_numbers_is_refused(content, tmp_path):
    (tmp_path / SUBSET).write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match=r"subset\.json: got content that is not a JSON object"):
        benchmark("longbench").data_names("qasper", {"longbench": tmp_path})


def test_published_numbers_are_those_of_the_data_sets_own_pages():
    assert sum(task.num_rows for task in LONGBENCH.values()) == 3750
    others = {name: task.num_rows for name, task in LONGBENCH.items() if task.num_rows != 200}
    assert others == {"multifieldqa_en": 150, "lcc": 500, "repobench-p": 500}
    assert NUM_QUESTIONS == {"squad": 5928, "xquad": 1190, "hotpotqa": 7405}
    rows = {name: (task.num_questions, task.num_shown) for name, task in ID_DIGITS.items()}
    assert rows == {
        "mmlu": (14_042, 57 * 5),
        "hellaswag": (10_042, 39_905),
        "arc_challenge": (1172, 1119),
        "piqa": (1838, 0),
        "triviaqa": (17_944, 138_384),
        "truthfulqa_mc2": (817, 0),
    }
