"""LongBench's scores where they differ from what one would write without its code, by hand."""

import pytest

from lce_core.benchmarks.longbench.metrics import code_similarity, token_f1


@pytest.mark.parametrize(
    ("prediction", "reference", "common", "words"),
    [
        ("red red blue", "red red green", 2, 6),
        ("red red red", "red", 1, 4),
        ("red", "red red red", 1, 4),
    ],
)
def test_a_word_counts_as_often_as_both_sides_have_it(prediction, reference, common, words):
    assert token_f1(prediction, reference) == pytest.approx(2 * common / words, rel=1e-12)


@pytest.mark.parametrize(
    ("prediction", "reference", "score"),
    [("abc", "abcd", 0.86), ("abcdefgh", "abcdefghijk", 0.84), ("a", "abc", 0.5), ("xy", "ab", 0)],
)
def test_edit_similarity_is_a_whole_number_of_hundredths(prediction, reference, score) -> None:
    # fuzzywuzzy rounds 100 * 2 M / T: 6 / 7 is 86, 16 / 19 is 84.
    assert code_similarity(prediction, reference) == score
