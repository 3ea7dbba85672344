"""nolima: made-up needles in NoLiMa's format, because the published ones are for noncommercial
research alone, read back from the prompts."""

import re
from pathlib import Path

import pytest

from lce_core.benchmarks import CellData
from lce_core.benchmarks.nolima import DEPTHS, Book, read_pairs
from lce_core.contracts.benchmark_cases import words_tokenizer
from lce_core.errors import DataError, UnavailableError
from tests.support.cells import TOY, benchmark, request
from tests.support.data.fixture_data import fixture_folders

NAMES = {"Quentin", "Xenia", "Zebedee"}
NEEDLE = re.compile(r" Last week (\w+) (slept|sang) beside the (old mill|red tower)\.\n")
PLACE = {"old mill": "Brook", "red tower": "Castleton"}


def folders(root: Path) -> dict[str, Path]:
    return fixture_folders(benchmark("nolima").reads("onehop"), root)


def built(root: Path, length: int, task: str = "onehop", **parameters):
    asked = benchmark("nolima", **parameters)
    cell = request(
        asked, length, task=task, tokenizer=words_tokenizer(), data_folders=folders(root)
    )
    texts = [
        words_tokenizer().decode(one.ids, skip_special_tokens=True) for one in asked.build(cell)
    ]
    return list(zip(asked.build(cell), texts, strict=True))


@pytest.mark.parametrize("task", ["onehop", "twohop"])
def test_a_prompt_hides_one_needle_at_its_depth_and_asks_without_its_words(tmp_path, task):
    found = built(tmp_path, 900, task, num_samples=13)
    seen = set()
    for prompt, text in found:
        head, question = text.removeprefix("Text:\n\n").split("\n\nQuestion: ")
        (name, verb, thing) = NEEDLE.search(head).groups()
        assert prompt.reference == name
        assert {*prompt.labels} == NAMES
        asked = "the country of " if task == "twohop" else ""
        assert question == f"Who {verb} in {asked}{PLACE[thing]}?\n\nAnswer:"
        before, after = head.split(NEEDLE.search(head)[0].strip())
        assert len(before.split()) / len((before + after).split()) == pytest.approx(
            prompt.depth / 100, abs=0.02
        )
        # The needle ends a line of the book, and the next line follows.
        assert prompt.depth == 100 or re.match(r"\nrand_book_\d \{line\} \d", after)
        assert 880 <= len(prompt.ids) + 32 <= 900
        seen.add((name, thing, re.search(r"rand_book_\d", after or before)[0]))
    assert [prompt.depth for prompt, _ in found] == list(DEPTHS[::2])
    assert len(seen) > 4
    assert (DEPTHS[0], DEPTHS[-1], len(DEPTHS)) == (0, 100, 26)
    asked, (prompt, _) = benchmark("nolima"), found[0]
    assert asked.num_prompts(task) == 10 * 26
    assert asked.score_answer(task, prompt, f"It is {prompt.reference}, I think") == 1
    assert asked.score_answer(task, prompt, prompt.reference.lower()) == 0


def test_the_number_of_pairs_is_that_of_the_folder(tmp_path):
    asked, data = benchmark("nolima"), folders(tmp_path)
    assert asked.data_samples(CellData(TOY, "onehop", 1000, data)) == 4
    assert asked.data_samples(CellData(TOY, "onehop", 1000, {})) is None
    names = [f"000{number}_T{test}_twohop" for number in (1, 2) for test in (1, 2)]
    assert [one.name for one in read_pairs(data, "twohop")] == names


def test_missing_parts_and_a_book_of_one_line_are_refused(tmp_path):
    data = folders(tmp_path)
    one_line = tmp_path / "one.txt"
    one_line.write_text("one line only")
    with pytest.raises(DataError, match="no line break"):
        Book.of(one_line)
    (data["nolima"] / "needlesets" / "needle_set.json").unlink()
    with pytest.raises(UnavailableError, match="no needle set"):
        read_pairs(data, "onehop")
