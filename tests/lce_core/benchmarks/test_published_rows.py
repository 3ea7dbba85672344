"""Published files are whole: every reader counts their rows, and a part has to be stated.

The published numbers stand here once more, from the data sets' own papers and pages.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from lce_core.benchmarks._data import SUBSET
from lce_core.benchmarks.long_eval.lines import published_prompts
from lce_core.benchmarks.longbench._tasks import TASKS as LONGBENCH
from lce_core.benchmarks.many_shot.trec import trec_questions
from lce_core.benchmarks.ruler._documents import NUM_QUESTIONS, XQUAD, read_squad
from lce_core.benchmarks.short_context.data import TASKS as ID_DIGITS
from lce_core.errors import DataError
from tests.support.cells import benchmark, request
from tests.support.data.short_context_rows import made_up, toy_request
from tests.support.data.subsets import state_rows

Read = Callable[[Path], object]


def _longbench(folder: Path) -> int:
    asked = benchmark("longbench", profile="clean")
    cell = request(asked, 600, task="multi_news", data_folders={"longbench": folder})
    return len(asked.rows(cell))  # type: ignore[attr-defined]


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


def _lines(name: str, kept: int) -> Callable[[Path], None]:
    def cut(folder: Path) -> None:
        lines = (folder / name).read_bytes().split(b"\n")
        (folder / name).write_bytes(b"\n".join(lines[:kept]) + b"\n")

    return cut


def _questions(folder: Path) -> None:
    file = folder / "xquad.en.json"
    content = json.loads(file.read_text(encoding="utf-8"))
    content["data"] = content["data"][:10]
    file.write_text(json.dumps(content), encoding="utf-8")


def _both_of_piqa(folder: Path) -> None:
    for name in ("valid.jsonl", "valid-labels.lst"):
        _lines(name, 37)(folder)


def _more(folder: Path) -> None:
    file = folder / "multi_news.jsonl"
    lines = file.read_bytes().rstrip(b"\n").split(b"\n")
    file.write_bytes(b"\n".join([*lines, lines[0]]))


CUT = [
    ("longbench", _longbench, 200, _lines("multi_news.jsonl", 37), "multi_news.jsonl", 37, 200),
    ("longbench", _longbench, 200, _more, "multi_news.jsonl", 201, 200),
    ("longeval", _long_eval, 50, _lines("200_lines.jsonl", 37), "200_lines.jsonl", 37, 50),
    ("trec", _trec, 5942, _lines("train.txt", 37), "train.txt", 37, 5452),
    ("trec", _trec, 5942, _lines("test.txt", 499), "test.txt", 499, 500),
    ("xquad", _xquad, 1190, _questions, "xquad.en.json", 274, 1190),
    ("piqa", _piqa, 1, _both_of_piqa, "validation", 37, 1838),
]


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "read", "whole", "cut", "part", "got", "published"),
    CUT,
    ids=[f"{row[0]}-{row[5]}" for row in CUT],
)
def test_a_file_that_is_not_whole_is_refused_unless_that_is_stated(
    name: str,
    read: Read,
    whole: int,
    cut: Callable[[Path], None],
    part: str,
    got: int,
    published: int,
    test_data: Path,
    tmp_path: Path,
) -> None:
    folder = Path(shutil.copytree(test_data / name, tmp_path / name))
    assert read(folder) == whole
    cut(folder)
    with pytest.raises(DataError) as error:
        read(folder)
    assert f": {part}: got {got} rows; expected all {published:,} rows; get it" in str(error.value)
    assert f'write {{"{part}": {got}}} into the file {SUBSET} in its' in str(error.value)
    state_rows(folder, {part: got})
    assert read(folder)
    state_rows(folder, {part: got + 1})
    with pytest.raises(DataError, match=f"got {got} rows; expected all {got + 1} rows"):
        read(folder)


@pytest.mark.parametrize("task", ["mmlu", "arc_challenge", "truthfulqa_mc2"])
def test_splits_are_counted_over_all_files_and_subjects(task: str, tmp_path: Path) -> None:
    folders = made_up(task, tmp_path)
    asked = benchmark("short_context", num_samples=1)
    stated = json.loads((tmp_path / SUBSET).read_text(encoding="utf-8"))
    split = {"mmlu": "test", "arc_challenge": "test"}.get(task, "validation")
    (tmp_path / SUBSET).unlink()
    with pytest.raises(DataError, match=rf": {split}: got {stated[split]} rows; expected all"):
        asked.evaluate(toy_request(2048, task=task, data_folders=folders))


@pytest.mark.data
def test_num_samples_asks_a_part_of_a_whole_file(test_data: Path) -> None:
    asked = benchmark("longbench", num_samples=37)
    folders = {"longbench": test_data / "longbench"}
    cell = request(asked, 600, task="multi_news", data_folders=folders)
    assert len(asked.rows(cell)) == 37  # type: ignore[attr-defined]
    assert asked.data_names("multi_news", folders) == ("longbench",)


def test_a_cell_says_that_its_data_are_a_part(tmp_path: Path) -> None:
    asked, folders = benchmark("longbench"), {"longbench": tmp_path}
    assert asked.data_names("qasper", folders) == ("longbench",)
    state_rows(tmp_path, {"qasper.jsonl": 4})
    assert asked.data_names("qasper", folders) == ("longbench (subset)",)


@pytest.mark.parametrize("content", ["[4]", "{", '{"qasper.jsonl": "4"}', '{"qasper.jsonl": true}'])
def test_a_statement_without_numbers_is_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / SUBSET).write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match=r"subset\.json: got content that is not a JSON object"):
        benchmark("longbench").data_names("qasper", {"longbench": tmp_path})


def test_published_numbers_are_those_of_the_data_sets_own_pages() -> None:
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
