"""Fingerprints are a function of values alone: order-free, exact, and closed to odd objects.

Hypothesis draws JSON values; hand-made cases cover what must be refused.
"""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lce_core.errors import SpecError
from lce_core.store.identity import canonical_json, fingerprint
from lce_core.store.steps import differences
from tests.support.free_steps import free_step

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20
)


@given(st.dictionaries(st.text(), VALUES))
def test_the_order_of_keys_does_not_matter(value: dict[str, object]) -> None:
    backwards = dict(reversed(list(value.items())))
    assert fingerprint(value) == fingerprint(backwards)


@given(VALUES)
def test_canonical_json_is_json_for_the_same_value(value: object) -> None:
    assert json.loads(canonical_json(value)) == value


@given(VALUES, VALUES)
def test_equal_fingerprints_mean_equal_text(one: object, other: object) -> None:
    same_text = json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
    assert (fingerprint(one) == fingerprint(other)) == same_text


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), {1, 2}, object(), b"x", {1: 2}, lambda: 0],
    ids=["nan", "inf", "set", "object", "bytes", "int-key", "function"],
)
def test_values_without_one_spelling_are_refused_with_their_place(value: object) -> None:
    with pytest.raises(SpecError, match=r"study\.deep\[0\]"):
        fingerprint({"deep": [value]}, "study")


def test_a_step_is_its_kind_spec_and_parents_and_not_its_name_or_axes() -> None:
    parent = free_step("rows", "p", {"n": 1}, {})
    step = free_step("cell", "a", {"x": 1}, {"rows": parent}, {"seed": 0})
    assert free_step("cell", "b", {"x": 1}, {"rows": parent}, {"seed": 9}).fingerprint == (
        step.fingerprint
    )
    other_parent = free_step("rows", "p", {"n": 2}, {})
    others = [
        free_step("base", "a", {"x": 1}, {"rows": parent}),
        free_step("cell", "a", {"x": 2}, {"rows": parent}),
        free_step("cell", "a", {"x": 1}, {"text": parent}),
        free_step("cell", "a", {"x": 1}, {"rows": other_parent}),
    ]
    assert len({step.fingerprint, *(other.fingerprint for other in others)}) == 5


def test_differences_name_the_field_that_changed_in_a_parent() -> None:
    def cell(rate: float) -> dict[str, object]:
        rows = free_step("rows", "r", {"n": 1}, {})
        train = free_step("finetune", "t", {"training": {"rate": rate}}, {"rows": rows})
        return dict(free_step("cell", "c", {"task": "x"}, {"checkpoint": train}).lineage)

    assert differences(cell(0.5), cell(0.25)) == ["checkpoint.training.rate: 0.5 -> 0.25"]
    assert differences(cell(0.5), cell(0.5)) == []
