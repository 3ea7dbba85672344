"""Axes contain their values and have readable ticks."""

from hypothesis import given
from hypothesis import strategies as st

from dashboards.charts import scales

finite = st.floats(-1e6, 1e6).filter(lambda value: value == 0 or abs(value) > 1e-3)
positive = st.floats(1e-3, 1e6)


@given(st.lists(finite, min_size=1, max_size=20))
def test_a_linear_axis_contains_every_value_between_its_ticks(values):
    scale, ticks = scales.linear(values, 300.0, 10.0)
    slack = 1e-6 * (ticks[-1] - ticks[0])
    assert ticks[0] - slack <= min(values)
    assert max(values) <= ticks[-1] + slack
    assert 2 <= len(ticks) <= 8
    assert all(9.9 <= scale(value) <= 300.1 for value in values)


@given(st.lists(finite, min_size=1, max_size=20))
def test_an_axis_that_ends_with_the_values_contains_them_even_if_all_are_equal(values):
    scale, ticks = scales.within(values, 10.0, 300.0)
    assert ticks
    assert all(9.9 <= scale(value) <= 300.1 for value in values)


@given(st.lists(positive, min_size=1, max_size=20))
def test_a_logarithmic_axis_contains_every_value_and_has_ticks(values):
    scale, ticks = scales.logarithmic(values, 300.0, 10.0)
    assert ticks
    assert all(9.9 <= scale(at) <= 300.1 for at in [*values, *ticks])


def test_lengths_are_their_own_ticks_unless_labels_would_overlap():
    assert scales.lengths([5000, 8000], 10.0, 300.0)[1] == [5000, 8000]
    assert scales.lengths([4096, 8000, 12288], 10.0, 300.0)[1] == [4096, 8000, 12288]
    assert scales.lengths([4096, 8000, 8200, 12288], 10.0, 300.0)[1] == [4096, 8192]
    assert scales.lengths([5000, 5010, 5020, 5030], 10.0, 100.0)[1] == [5000, 5030]
    assert scales.lengths([3000], 10.0, 300.0)[1] == [3000]


def test_a_short_logarithmic_axis_has_three_ticks_or_more():
    assert scales.logarithmic([5.8, 31], 300.0, 10.0)[1] == [7, 10, 15, 20, 30]
    assert scales.logarithmic([4.6, 39], 300.0, 10.0)[1] == [5, 10, 20]
    assert scales.logarithmic([1, 5e4], 300.0, 10.0)[1] == [1, 10, 100, 1000, 1e4]
