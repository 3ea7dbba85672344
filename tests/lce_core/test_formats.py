"""Numbers keep the digits that readers need, and their unit."""

from lce_core import formats


def test_scores_have_four_digits_and_short_ones_two_decimals():
    values = (0.98333, 18.9233, 1234.56, 0, 1.5e7, 0.0004)
    assert [formats.score(value) for value in values] == [
        "0.9833", "18.92", "1235", "0", "1.500e+07", "4.000e-04",
    ]  # fmt: skip
    assert [formats.short_score(value) for value in values[:3]] == ["0.98", "18.92", "1235"]


def test_a_value_in_a_sentence_has_the_decimals_of_its_interval():
    assert formats.estimate(0.012, 0.004, 0.02) == "0.012 [0.004 to 0.020]"
    assert formats.estimate(1.5, None, None) == "1.50"
    assert formats.difference(0.0124, -0.003, 0.0271) == "+0.012 [-0.003, +0.027]"
