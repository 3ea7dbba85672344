"""Fingerprints are a function of values alone: order-free, exact, and closed to odd objects."""

import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lce_core.errors import SpecError
from lce_core.store.identity import canonical_json, fingerprint, sha256_file
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
    SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8
)


@given(st.dictionaries(st.text(), VALUES, max_size=4))
def test_the_order_of_keys_does_not_matter(value):
    backwards = dict(reversed(list(value.items())))
    assert fingerprint(value) == fingerprint(backwards)
    assert json.loads(canonical_json(value)) == value


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), {1, 2}, object(), b"x", {1: 2}, lambda: 0],
    ids=["nan", "inf", "set", "object", "bytes", "int-key", "function"],
)
def test_values_without_one_spelling_are_refused_with_their_place(value):
    with pytest.raises(SpecError, match=r"study\.deep\[0\]"):
        fingerprint({"deep": [value]}, "study")


def test_a_step_is_its_kind_spec_and_parents_and_not_its_name_or_axes():
    rows, other = (free_step("rows", "p", {"n": n}, {}) for n in (1, 2))
    step = free_step("cell", "a", {"x": 1}, {"rows": rows}, {"seed": 0})
    renamed = free_step("cell", "b", {"x": 1}, {"rows": rows}, {"seed": 9})
    assert renamed.fingerprint == step.fingerprint
    others = [
        free_step("base", "a", {"x": 1}, {"rows": rows}),
        free_step("cell", "a", {"x": 2}, {"rows": rows}),
        free_step("cell", "a", {"x": 1}, {"text": rows}),
        free_step("cell", "a", {"x": 1}, {"rows": other}),
    ]
    assert len({step.fingerprint, *(other.fingerprint for other in others)}) == 5


def test_differences_name_the_field_that_changed_in_a_parent():
    def cell(rate: float) -> dict[str, object]:
        rows = free_step("rows", "r", {"n": 1}, {})
        train = free_step("finetune", "t", {"training": {"rate": rate}}, {"rows": rows})
        return dict(free_step("cell", "c", {"task": "x"}, {"checkpoint": train}).lineage)

    assert differences(cell(0.5), cell(0.25)) == ["checkpoint.training.rate: 0.5 -> 0.25"]
    assert differences(cell(0.5), cell(0.5)) == []


# The digest is that of `sha256sum`; every id in every store depends on it.
VALUE = {"c": {}, "b": [1, 2.5, None, True], "a": "\u00e9"}
SPELLED = r'{"a":"\u00e9","b":[1,2.5,null,true],"c":{}}'
DIGEST = "0521416f552012ea03ca1f1a3fab3709d2d4d854521a3db993785caee0e1fad3"


def test_a_value_has_one_spelling_and_the_digest_of_that():
    assert canonical_json(VALUE) == SPELLED
    assert fingerprint(VALUE) == DIGEST


@pytest.mark.parametrize("size", [0, (1 << 20) + 1, (3 << 20) - 1])
def test_a_file_is_digested_whole(size, tmp_path):
    content = bytes(range(251)) * (size // 251 + 1)
    (tmp_path / "file").write_bytes(content[:size])
    assert sha256_file(tmp_path / "file") == hashlib.sha256(content[:size]).hexdigest()
