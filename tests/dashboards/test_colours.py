"""Colours are distinguishable and have enough contrast on light and dark pages."""

import itertools
import math
import re
from pathlib import Path

import dashboards
from catalog.palette import CONTROL_LOOK, NUM_SHAPES, PLACES, looks
from dashboards.charts.marks import SHAPES, opening, picture
from lce_core.methods import METHODS

STEPS = [f"h{step}" for step in range(11)]
LINES = [f"c{number}" for number in range(6)]


def schemes() -> dict[str, dict[str, str]]:
    """Return the colours by name of light and of dark pages."""
    text = (Path(dashboards.__file__).parent / "page" / "figures.css").read_text(encoding="utf-8")
    light, dark = text.split("@media screen and (prefers-color-scheme: dark)", 1)
    colours = [dict(re.findall(r"--([\w-]+): (#\w+);", part)) for part in (light, dark)]
    return {"light": colours[0], "dark": {**colours[0], **colours[1]}}


def luminance(colour: str) -> float:
    """Return the relative luminance of WCAG 2."""
    digits = colour.lstrip("#")
    if len(digits) == 3:
        digits = "".join(digit * 2 for digit in digits)
    parts = [int(digits[start : start + 2], 16) / 255 for start in (0, 2, 4)]
    linear = [
        part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_lightness_rises_or_falls_through_the_scale_of_heat_maps():
    for name, colours in schemes().items():
        steps = [luminance(colours[step]) for step in STEPS]
        rises = [b > a for a, b in itertools.pairwise(steps)]
        assert set(rises) == {name == "dark"}


def test_numbers_lines_and_text_have_contrast():
    for name, colours in schemes().items():
        for number, step in enumerate(STEPS):
            ink = colours["strong-ink" if number >= 7 else "ink"]
            assert contrast(colours[step], ink) >= 4.5, (name, step)
        for line in LINES:
            assert contrast(colours[line], colours["page"]) >= 3, (name, line)
        for words in ("text", "soft"):
            assert contrast(colours[words], colours["page"]) >= 4.5, (name, words)


def test_listed_methods_exist_in_their_family():
    for family, methods in PLACES.items():
        assert {METHODS.load(name).family for name in methods} == {family}


def test_methods_contrast_with_the_page():
    pages = {name: colours["page"] for name, colours in schemes().items()}
    for method, look in looks(every_method()).items():
        assert contrast(look.light, pages["light"]) >= 3, method
        assert contrast(look.dark, pages["dark"]) >= 3, method


def test_every_method_has_its_own_colour_and_neighbours_differ_clearly():
    found = looks(every_method())
    assert len({look.light for look in found.values()}) == len(found)
    assert len(SHAPES) == NUM_SHAPES
    for methods in PLACES.values():
        # A panel of the report has at most six methods of a family.
        for one, other in itertools.combinations(methods[:6], 2):
            assert found[one].shape != found[other].shape
            assert distance(found[one].light, found[other].light) > 50, (one, other)


def test_a_listed_method_looks_the_same_in_every_study_and_labels_take_free_places():
    alone = looks({"yarn": "interpolation"})["yarn"]
    study = {"none": "none", "yarn_8": "interpolation", "yarn": "interpolation", "own": None}
    found = looks(study)
    assert found["yarn"] == alone
    assert found["none"] == CONTROL_LOOK
    shipped = looks(every_method())
    assert {found["yarn_8"].light, found["own"].light}.isdisjoint(
        look.light for look in shipped.values()
    )


def test_pictures_of_documents_are_light() -> None:
    # A page without scripts may be light while the reader's system is dark.
    style = picture([opening("map", 10, 10, "heat") + "</svg>"])
    light, dark = schemes().values()
    assert f"--h10: {light['h10']}" in style
    assert dark["h10"] not in style
    assert "--colour: var(--dark)" not in style
    assert ".field.best text" in style


def every_method() -> dict[str, str]:
    return {name: family for family, methods in PLACES.items() for name in methods}


def distance(one: str, other: str) -> float:
    """Return the Euclidean distance of two colours in RGB, 0 to 441."""
    return math.dist(bytes.fromhex(one[1:]), bytes.fromhex(other[1:]))
