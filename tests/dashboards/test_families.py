"""Every variant is in one panel, and no panel has more than six lines."""

from hypothesis import given
from hypothesis import strategies as st

from dashboards.families import MOST_LINES, Family, Variant, panels

members = st.lists(
    st.builds(Variant, st.sampled_from("abcdefghijklmnop"), st.booleans()), unique=True
)


@given(members, st.sets(st.integers(0, 31)))
def test_each_shown_variant_is_in_one_panel_of_at_most_six(known, left_out):
    shown = [one for number, one in enumerate(known) if number not in left_out]
    family = Family("base", "Change of base", tuple(known))
    found = panels([family], shown)
    assert sorted(map(str, (one for part in found for one in part.variants))) == sorted(
        map(str, shown)
    )
    assert all(0 < len(part.variants) <= MOST_LINES for part in found)
    assert len({part.title for part in found}) == len(found)
