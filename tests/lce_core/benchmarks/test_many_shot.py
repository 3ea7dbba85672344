"""Many-shot learning: prompts taken apart by hand; nested and shared examples as properties; names
of TREC's classes against the published files."""

import collections
import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lce_core.benchmarks import Benchmark, CellRequest
from lce_core.benchmarks.many_shot import drawn_order
from lce_core.benchmarks.many_shot.trec import CLASSES, LABELS, trec_questions
from lce_core.errors import DataError, UnavailableError
from tests.support.cells import TOY, benchmark, request
from tests.support.data.subsets import state_rows

HEADER = "Please determine the type of the question below. Here are some examples of questions.\n\n"
CODES = ("NUM:date", "LOC:city", "HUM:ind", "NUM:date", "ENTY:color")


@pytest.fixture
def trec(tmp_path) -> Path:
    """40 questions to show and 12 to ask, of which one is also shown; Latin-1."""
    shown = [f"{CODES[i % 5]} What is thing {i} of caf\xe9 ?" for i in range(40)]
    asked = [f"{CODES[i % 5]} Who made thing {i} ?" for i in range(12)] + [shown[3]]
    for name, lines in (("train.txt", shown), ("test.txt", asked)):
        (tmp_path / name).write_text("\n".join(lines) + "\n", encoding="latin-1")
    return state_rows(tmp_path, {"train.txt": 40, "test.txt": 13})


def _benchmark(**parameters: Any) -> Benchmark:
    return benchmark("many_shot", **parameters)


def _request(task: str, length: int, folder: Path | None, **changes: Any) -> CellRequest:
    folders = {"trec": folder} if folder else {}
    return request(_benchmark(), length, task=task, data_folders=folders, **changes)


def _texts(benchmark: Any, request: CellRequest) -> list[str]:
    return [request.tokenizer.decode(prompt.ids) for prompt in benchmark.prompts(request)]


def _examples(text: str) -> list[str]:
    return text.removeprefix(HEADER).split("Question: ")[1:-1]


def test_the_prompt_is_examples_with_their_type_and_a_question_without(trec):
    benchmark = _benchmark(shots=[2], num_questions=11, permutations=1)
    request = _request("shots_2", 900, trec)
    for text, prompt in zip(_texts(benchmark, request), benchmark.prompts(request), strict=True):
        assert text.startswith(HEADER)
        *examples, asked = text.removeprefix(HEADER).split("\nQuestion: ")
        assert len(examples) == 2
        for example in examples:
            question, label = example.removeprefix("Question: ").split("\nType: ")
            number = int(question.split("thing ")[1].split()[0])
            assert question == f"What is thing {number} of caf\xe9 ?"
            assert label == LABELS[CODES[number % 5]]
        question, rest = asked.split("\nType:")
        assert rest == ""
        assert prompt.reference == LABELS[CODES[int(question.split("thing ")[1].split()[0]) % 5]]


def test_fewer_examples_are_a_beginning_of_more_whatever_the_length(trec):
    benchmark = _benchmark(shots=[3, 8], num_questions=4, permutations=2)
    few = _texts(benchmark, _request("shots_3", 1200, trec))
    many = _texts(benchmark, _request("shots_8", 2000, trec))
    for short, long in zip(few, many, strict=True):
        assert _examples(short)[:3] == _examples(long)[:3]
        assert short.split("Question: ")[-1] == long.split("Question: ")[-1]
    assert _examples(many[0]) != _examples(many[4])


@given(
    st.lists(st.sampled_from("abcd"), min_size=4, max_size=30),
    st.integers(1, 30),
    st.integers(0, 5),
    st.booleans(),
)
def test_orders_are_nested_and_balanced_ones_show_each_class_once_a_round(
    labels, count, seed, balanced
):
    def order(number: int) -> list[int]:
        return drawn_order(labels, number, np.random.default_rng(seed), balanced=balanced)

    drawn, classes = order(count), len(set(labels))
    assert drawn == order(30)[:count]
    if balanced:
        for start in range(0, count - classes + 1, classes):
            assert {labels[i] for i in drawn[start : start + classes]} == set(labels)
    else:
        assert len(set(drawn)) == len(drawn) == min(count, len(labels))


def test_prompts_that_do_not_fit_say_the_minimum_or_lose_their_middle(trec):
    settings = {"shots": [20], "num_questions": 11, "permutations": 1}
    clean, faithful = _benchmark(**settings), _benchmark(**settings, profile="faithful")
    with pytest.raises(UnavailableError, match=r"got 500 tokens, .* at least \d+ tokens") as error:
        clean.evaluate(_request("shots_20", 500, trec))
    minimum = int(str(error.value).split("at least ")[1].split()[0])
    fitting = clean.prompts(_request("shots_20", minimum, trec))
    assert max(len(prompt.ids) for prompt in fitting) == minimum - 64
    with pytest.raises(UnavailableError):
        clean.evaluate(_request("shots_20", minimum - 1, trec))
    for text in _texts(faithful, _request("shots_20", 500, trec)):
        assert len(text.encode()) in range(499, 504)  # a cut may split a character of two bytes
        assert text.startswith(HEADER)
        assert text.endswith(" ?\nType:")


def test_more_examples_or_questions_than_there_are_is_unavailable(trec):
    with pytest.raises(UnavailableError, match="got 12 questions to ask; expected at least 200"):
        _benchmark().evaluate(_request("shots_1", 4096, trec))
    for balanced in (False, True):
        benchmark = _benchmark(num_questions=2, permutations=1, balanced=balanced)
        with pytest.raises(UnavailableError, match="expected at least 50"):
            benchmark.evaluate(_request("shots_50", 8192, trec))


def test_samples_are_clustered_by_permutation_or_question_and_seed(trec):
    cells = [_request("shots_1", 400, trec, seed=seed) for seed in (0, 1)]
    for orders, clusters in ((1, 6), (3, 3)):
        benchmark = _benchmark(shots=[1], num_questions=6, permutations=orders)
        one, other = (
            {sample.cluster for sample in benchmark.evaluate(cell).samples} for cell in cells
        )
        assert len(one) == clusters
        assert not one & other


def test_token_prompts_show_the_same_examples_before_every_query():
    benchmark, keys = _benchmark(profile="tiny", num_questions=5, permutations=2), TOY.keys
    request = _request("shots_10", 300, None)
    prompts = benchmark.prompts(request)
    for order in range(2):
        own = prompts[5 * order : 5 * order + 5]
        places = np.flatnonzero(own[0].ids >= keys.first_query)
        assert len(places) == 11
        assert places[-1] == 298
        start = places[-2] + 2
        assert len({prompt.ids[:start].tobytes() for prompt in own}) == 1
        names = {}
        for place in places[:-1]:
            family, key = own[0].ids[place] - keys.first_query, own[0].ids[place + 1]
            assert (key - keys.first_key) // keys.members == family
            assert names.setdefault(family, key) == key
        for prompt in own:
            asked = prompt.ids[-1] - keys.first_query
            if asked in names:
                gold = request.tokenizer.convert_ids_to_tokens(int(names[asked]))
                assert prompt.reference == gold
    assert prompts[0].ids.tobytes() != prompts[5].ids.tobytes()


def test_balanced_rounds_begin_with_any_class():
    labels = [label for label in "abcdef" for _ in range(3)]
    firsts = set()
    for seed in range(60):
        order = drawn_order(labels, 12, np.random.default_rng(seed), balanced=True)
        rounds = [[labels[index] for index in order[start : start + 6]] for start in (0, 6)]
        assert [sorted(one) for one in rounds] == [sorted("abcdef")] * 2
        firsts |= {rounds[0][0], rounds[1][0]}
    assert firsts == set("abcdef")


def test_the_published_files_have_exactly_the_known_codes(test_data):
    counts = {}
    for name, md5 in (
        ("train.txt", "073462e3fcefaae31e00edb1f18d2d02"),
        ("test.txt", "323a3554401d86e650717e2d2f942589"),
    ):
        content = (test_data / "trec" / name).read_bytes()
        assert hashlib.md5(content, usedforsecurity=False).hexdigest() == md5
        counts[name] = collections.Counter(
            line.split(" ", 1)[0] for line in content.decode("latin-1").split("\n") if line
        )
    assert set(counts["train.txt"]) == set(LABELS)
    assert set(counts["test.txt"]) <= set(LABELS)
    shown, asked = trec_questions({"trec": test_data / "trec"})
    assert (len(shown), len(asked)) == (5452, 490)
    names = collections.Counter(question.label for question in shown)
    assert names == {LABELS[code]: number for code, number in counts["train.txt"].items()}
    assert not {question.text for question in shown} & {question.text for question in asked}
    # The names fit their questions.
    for text, name in (
        ("What currency is used in Australia ?", "Currency name"),
        ("How did serfdom develop in and then leave Russia ?", "Manner of an action"),
    ):
        assert {one.label for one in shown if one.text == text} == {name}


def test_there_are_fifty_names_in_one_order():
    assert len(LABELS) == len(set(LABELS.values())) == 50
    digest = hashlib.sha256("\n".join(CLASSES).encode()).hexdigest()
    assert digest == "117968585b3cf5783ea53b82c11695b749dd1086f1ba5bc083e16c8dfd229420"
    assert CLASSES[:4] == ("Food", "Date", "Order, rank", "Speed")


def test_absent_files_and_lines_that_are_not_as_published_are_named(tmp_path):
    with pytest.raises(UnavailableError, match=r"'trec': got no folder of this name.*nltk_data"):
        trec_questions({})
    (tmp_path / "train.txt").write_bytes(b"NUM:date When ?\nNUM:hour When ?\n")
    with pytest.raises(UnavailableError, match=r"got no test\.txt"):
        trec_questions({"trec": tmp_path})
    (tmp_path / "test.txt").write_bytes(b"NUM:date When ?\n")
    with pytest.raises(DataError, match=r"train\.txt: line 2: got 'NUM:hour When \?'"):
        trec_questions({"trec": tmp_path})


def test_questions_are_latin_1_and_those_that_are_shown_are_not_asked(tmp_path):
    (tmp_path / "train.txt").write_bytes(b"NUM:date When was caf\xe9 new ?\nHUM:ind Who ?\n")
    (tmp_path / "test.txt").write_bytes(b"HUM:ind Who ?\nLOC:city Where ?\n")
    state_rows(tmp_path, {"train.txt": 2, "test.txt": 2})
    shown, asked = trec_questions({"trec": tmp_path})
    assert [(one.text, one.label) for one in shown] == [
        ("When was caf\xe9 new ?", "Date"),
        ("Who ?", "Individual"),
    ]
    assert [one.text for one in asked] == ["Where ?"]
