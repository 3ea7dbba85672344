"""Small stand-ins of every data set that benchmarks read, in their published form.

They are found by the data set's name, so that a benchmark's tests need no list of benchmarks.
"""

import functools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from lce_core.benchmarks._data import DataSet
from lce_core.benchmarks.longbench.tasks import TASKS as LONGBENCH_TASKS
from lce_core.benchmarks.many_shot.trec import LABELS
from lce_core.benchmarks.short_context.data import TASKS as SHORT_TASKS
from lce_core.contracts.benchmark_cases import STORY
from tests.support.data.short_context_rows import made_up
from tests.support.data.subsets import state_rows
from tests.support.ruler.prompts import stand_in_data

_CLASSES = ["Food", "Other number", "Number of something", "Date"]


def fixture_folders(data_sets: Iterable[DataSet], root: Path) -> dict[str, Path]:
    """A folder for each data set, filled on first use.

    Raises:
      AssertionError: a data set without a stand-in.
    """
    folders = {}
    for data_set in data_sets:
        writer = WRITERS.get(data_set.name)
        assert writer is not None, (
            f"data set {data_set.name!r} has no stand-in: add one to {Path(__file__).name}"
        )
        folder = root / data_set.name
        if not folder.exists():
            folder.mkdir()
            writer(folder)
        folders[data_set.name] = folder
    return folders


def _write_lines(file: Path, rows: Sequence[Mapping[str, object]]) -> None:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    state_rows(file.parent, {file.name: len(rows)})


def _ruler(folder: Path) -> None:
    aside = folder.parent / f"{folder.name}-all"
    aside.mkdir()
    for file in stand_in_data(aside)[folder.name].iterdir():
        file.rename(folder / file.name)


def _longbench(folder: Path) -> None:
    answers = {
        "trec": "Number of something",
        "passage_count": "17",
        "passage_retrieval_en": "Paragraph 15",
        "lcc": "    return value",
        "repobench-p": "    return value",
    }
    for task in LONGBENCH_TASKS:
        rows = [
            {
                "input": f"Which boat number {number} is it?",
                "context": f"Harbour {number // 2} has boats {{like this}}. " * 30,
                "answers": [answers.get(task, f"the boat number {number} of two")],
                "length": 180,
                "dataset": task,
                "language": "en",
                "all_classes": _CLASSES if task == "trec" else None,
                "_id": str(number),
            }
            for number in range(4)
        ]
        _write_lines(folder / f"{task}.jsonl", rows)


def _longbench_v2(folder: Path) -> None:
    rows = [
        {
            "length": length,
            "context": f"Harbour {number // 2} has boats. {STORY * 12}",
            "question": f"Which boat has the number {number}? ",
            **{f"choice_{letter}": f"the boat {letter.lower()}" for letter in "ABCD"},
            "answer": "ABCD"[number],
        }
        for number in range(4)
        for length in ("short", "medium", "long")
    ]
    (folder / "data.json").write_text(json.dumps(rows), encoding="utf-8")
    state_rows(folder, {"data.json": len(rows)})


def _mrcr(folder: Path) -> None:
    for needles in (2, 4, 8):
        rows = [_conversation(needles, size) for size in (0, 2, 5, 14, 31, 60)]
        place = folder / f"{needles}needle"
        place.mkdir()
        pq.write_table(pa.Table.from_pylist(rows), place / f"{needles}needle_0.parquet")
        state_rows(folder, {place.name: len(rows)})


def _conversation(needles: int, size: int) -> dict[str, object]:
    """A row of MRCR: `needles` poems about boats, with `size` other texts before each."""
    pairs = [
        pair
        for number in range(1, needles + 1)
        for pair in (
            *[("write a riddle about boats", STORY)] * size,
            ("write a poem about boats", f"Boat {number} of {size} sails."),
        )
    ]
    asked = size % needles
    order = ("1st", "2nd", "3rd", *(f"{number}th" for number in range(4, 9)))[asked]
    contents = ["Examples follow.\n", *(text for pair in pairs for text in pair)]
    contents += [f"Prepend Xq{size}Zr7 to the {order} (1 indexed) poem about boats."]
    roles = ["user", *["user", "assistant"] * len(pairs), "user"]
    messages = [{"role": a, "content": b} for a, b in zip(roles, contents, strict=True)]
    return {
        "prompt": json.dumps(messages),
        "answer": f"Xq{size}Zr7Boat {asked + 1} of {size} sails.",
        "random_string_to_prepend": f"Xq{size}Zr7",
        "n_needles": needles,
        "desired_msg_index": 2 * (asked + 1) * (size + 1) - 1,
        "total_messages": len(messages),
        "n_chars": sum(map(len, contents)),
    }


def _trec(folder: Path) -> None:
    codes = sorted(LABELS)[:12]
    for name, count in (("train.txt", 24), ("test.txt", 12)):
        lines = [f"{codes[i % 12]} What of {name[:2]} {i} ?\n" for i in range(count)]
        (folder / name).write_text("".join(lines), encoding="latin-1")
        state_rows(folder, {name: count})


def _long_eval(folder: Path) -> None:
    for lines in range(4, 36, 2):  # so that one of them fills a length of hundreds of tokens
        rows = [_long_eval_row(lines, row) for row in range(4)]
        _write_lines(folder / f"{lines}_lines.jsonl", rows)


def _long_eval_row(num_lines: int, row: int) -> dict[str, object]:
    names = [
        f"{how}-{what}"
        for what in ("ship", "lamp", "hill", "rain", "port", "week")
        for how in ("old", "new", "red", "dry", "wet", "big")
    ]
    numbers = [1000 + 37 * row + 11 * place for place in range(num_lines)]
    lines = [f"line {a}: REGISTER_CONTENT is <{b}>" for a, b in zip(names, numbers, strict=False)]
    asked = row % num_lines
    question = f"Now the record is over. Tell me what is in line {names[asked]}?"
    return {
        "prompt": "\n".join(["Below is a record of lines.", *lines, question]),
        "random_idx": [names[asked], asked],
        "expected_number": numbers[asked],
        "num_lines": num_lines,
    }


def _books(folder: Path) -> None:
    for name in ("a", "b"):
        (folder / f"{name}.txt").write_text(f"Book {name}. {STORY * 100}", encoding="utf-8")


def _nolima(folder: Path) -> None:
    """Made-up needles in NoLiMa's format; the licensed data set is nowhere in this repository."""
    entries = [
        {
            "id": f"{number:04d}",
            "reasoning_type": "made up",
            "system_prompt": "",
            "task_template": "Text:\n\n{haystack}\n\nQuestion: {question}",
            "needle": f"Last week {{CHAR}} {verb} beside the {{1}}.",
            "questions": {
                "onehop": f"Who {verb} in {{2}}?",
                "twohop": f"Who {verb} in the country of {{2}}?",
            },
            "character_set": ["Quentin", "Xenia", "Zebedee"],
            "tests": {
                "T1": {"input_args": ["old mill", "Brook"]},
                "T2": {"input_args": ["red tower", "Castleton"]},
            },
        }
        for number, verb in enumerate(("slept", "sang"), start=1)
    ]
    for place in ("needlesets", "haystack/rand_shuffle"):
        (folder / place).mkdir(parents=True)
    (folder / "needlesets" / "needle_set.json").write_text(json.dumps(entries), encoding="utf-8")
    for name in ("rand_book_1", "rand_book_2"):
        text = "\n".join(f"{name} {{line}} {line}. {STORY}".strip() for line in range(60))
        file = folder / "haystack" / "rand_shuffle" / f"{name}.txt"
        file.write_text(text, encoding="utf-8")


def _mmlu(folder: Path) -> None:
    (folder / "all").mkdir()
    counts = {"test": 6, "auxiliary_train": 40}
    for split, count in counts.items():
        rows = [
            {
                "question": f"Which {split}  boat has\nnumber {number}?",
                "subject": "boats",
                "choices": [f"boat {letter}{number}" for letter in "wxyz"],
                "answer": number % 4,
            }
            for number in range(count)
        ]
        pq.write_table(
            pa.Table.from_pylist(rows), folder / "all" / f"{split}-00000-of-00001.parquet"
        )
    state_rows(folder, counts)


WRITERS: dict[str, Callable[[Path], object]] = {
    "essays": _ruler,
    "squad": _ruler,
    "hotpotqa": _ruler,
    "longbench": _longbench,
    "longbench_v2": _longbench_v2,
    "mrcr": _mrcr,
    "trec": _trec,
    "long_eval": _long_eval,
    "pg19": _books,
    "proof_pile": _books,
    "govreport": _books,
    "one_ruler_book": _books,
    "nolima": _nolima,
    "mmlu_all": _mmlu,
    **{
        data_set.name: functools.partial(made_up, task, num_questions=4)
        for task, asked in SHORT_TASKS.items()
        for data_set in asked.splits.values()
    },
}
"""What writes a stand-in into an empty folder, by the data set's name."""
