"""MRCR: a reader of the printed conversation finds the answer; scores by Ratcliff and Obershelp."""

import re
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lce_core.benchmarks._data import SUBSET
from lce_core.benchmarks.mrcr import similarity
from lce_core.contracts.benchmark_cases import words_tokenizer
from lce_core.errors import DataError, UnavailableError
from lce_core.prompts import readable
from tests.support.cells import benchmark, request
from tests.support.data.fixture_data import fixture_folders

ASKED = benchmark("mrcr")


def built(root, length, task="needles_2", **changes):
    folders = changes.pop("data_folders", None) or fixture_folders(ASKED.reads(task), root)
    changes = {"tokenizer": words_tokenizer(), "data_folders": folders, "task": task} | changes
    return benchmark("mrcr").build(request(ASKED, length, **changes))


def in_words(prompt):
    return words_tokenizer().decode(prompt.ids, skip_special_tokens=True)


@pytest.mark.parametrize("task", ASKED.tasks())
def test_a_reader_finds_the_asked_text_by_its_order_at_its_depth(task, tmp_path):
    prompts = [prompt for length in (4000, 8000, 16000) for prompt in built(tmp_path, length, task)]
    assert len(prompts) >= 3
    for prompt in prompts:
        text = in_words(prompt)
        begun, number, what = re.search(
            r"\nUser: Prepend (\w+) to the (\d)\w\w \(1 indexed\) ([^\n]+)\.\nAssistant:$", text
        ).groups()
        found = list(re.finditer(rf"\nUser: write a {what}\nAssistant: ([^\n]+)", text))
        assert len(found) == int(task[-1])
        asked = found[int(number) - 1]
        assert prompt.reference == begun + asked[1]
        assert readable(prompt, words_tokenizer()).places == [tuple(np.add(asked.span(1), 3))]
        assert prompt.depth == pytest.approx(
            100 * text.index("Assistant", *asked.span()) / len(text)
        )
        examples, end = text[: text.index("\nUser: write")], text[text.rindex("\nUser: Prepend") :]
        controls = [
            words_tokenizer().decode(ids, skip_special_tokens=True) for ids in prompt.controls
        ]
        assert "Examples follow." in examples
        assert controls == [f"{examples}{end}", f"{examples}{asked[0]}{end}"]


def test_lengths_that_double_share_all_conversations_among_them(tmp_path):
    lengths = [1400 * 2**power for power in range(4)]
    cells = []
    for length in lengths:
        cells.append([(len(one.ids) + 1024, in_words(one)) for one in built(tmp_path, length)])
        assert all(length / 2 < filled <= length for filled, _ in cells[-1])
    texts = [text for cell in cells for _, text in cell]
    assert len(texts) == len(set(texts)) == 6
    with pytest.raises(UnavailableError, match=r"got 22,400 tokens, of which no conversation"):
        built(tmp_path, 22400)


def matching(a: str, b: str) -> int:
    """Characters of the longest common part, the first in `a` and then in `b`, and beside it."""
    for size in range(min(len(a), len(b)), 0, -1):
        for start in range(len(a) - size + 1):
            place = b.find(a[start : start + size])
            if place >= 0:
                after = matching(a[start + size :], b[place + size :])
                return matching(a[:start], b[:place]) + size + after
    return 0


@given(st.text("abc ", max_size=30), st.text("abc ", max_size=30))
def test_the_score_counts_matches_as_ratcliff_and_obershelp_define_them(answer, text):
    expected = 2 * matching(answer, text) / (len(answer) + len(text)) if answer + text else 1
    assert similarity(f"Xq7{answer}", f"Xq7{text}", "Xq7") == pytest.approx(expected, abs=1e-12)


def test_generation_stops_at_the_next_turn_and_when_the_random_string_is_missed(tmp_path):
    prompt = built(tmp_path, 4000)[0]
    begun = re.match(r"Xq\d+Zr7", prompt.reference)[0]
    for going_on in ("", " ", "\n Xq", f" {begun}", f"{prompt.reference} and more\nuser:"):
        assert not ASKED.complete("needles_2", prompt, going_on), going_on
    for done in ("Boat", "\nUser: write", f" {begun[:-1]}8", f"{prompt.reference}\nUser:"):
        assert ASKED.complete("needles_2", prompt, done), done
    late = f"\n{prompt.reference}\nUser: write a poem"
    assert ASKED.score_answer("needles_2", prompt, late) == 1


def test_rows_of_the_hub_in_one_file_give_the_prompts_of_the_folders(tmp_path):
    folders = fixture_folders(ASKED.reads("needles_2"), tmp_path)
    files = sorted(folders["mrcr"].glob("*/*.parquet"))
    rows = [row for file in files for row in pq.read_table(file).to_pylist()]
    single = tmp_path / "2needle"
    single.mkdir()
    shutil.copy(folders["mrcr"] / SUBSET, tmp_path)
    pq.write_table(pa.Table.from_pylist(rows), single / "all.parquet")
    whole, own = (
        built(tmp_path, 4000, data_folders={"mrcr": place}) for place in (tmp_path, folders["mrcr"])
    )
    assert [prompt.reference for prompt in whole] == [prompt.reference for prompt in own]


def test_missing_rows_are_refused(tmp_path):
    folders = fixture_folders(ASKED.reads("needles_2"), tmp_path)
    (folders["mrcr"] / SUBSET).unlink()
    with pytest.raises(DataError, match="2needle: got 6 rows; expected all 800 rows"):
        built(tmp_path, 4000)
