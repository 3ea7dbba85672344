"""The many-shot chart shows the catalog's values at the right positions."""

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dashboards.contents import Contents, read_contents, select
from dashboards.markdown import write_markdown
from dashboards.sections.curves import by_shots, pictured, spans_a_decade
from lce_core.benchmarks.many_shot.trec import CLASSES
from tests.support.catalogs.answered_catalog import Answered, written

OWN, TARGET = 128, 512
SHOTS = (1, 10, 100)
VARIANTS = (("none", True), ("pi", True), ("pi", False), ("yarn", False))
ORDERS, QUESTIONS = 3, 4
Mark = dict[str, str]


def cell(
    method: str, frozen: bool, seed: int, count: int, answers: list[float], **facts: Any
) -> Answered:
    profile = facts.pop("profile", "fast")
    return Answered(
        method, frozen, seed, "many_shot", f"shots_{count}",
        facts.pop("eval_length", OWN if method == "none" else TARGET), answers,
        float(np.mean(answers)) if answers else 0.0,
        clusters=[f"order-{n // QUESTIONS}" for n in range(len(answers))],
        extra={"profile": profile, "family": "interpolation"}, **facts,
    )  # fmt: skip


def planted() -> Iterator[Answered]:
    """Return cells with three seeds each, except yarn with 100 examples, which lacks one."""
    rng = np.random.default_rng(13)
    for place, (method, frozen) in enumerate(VARIANTS):
        for count in SHOTS:
            for seed in range(3):
                gone = (method, count, seed) == ("yarn", 100, 2)
                right = rng.random(ORDERS * QUESTIONS) < 0.2 * (place + math.log10(count))
                yield cell(
                    method, frozen, seed, count, [] if gone else right.astype(float).tolist()
                )


@pytest.fixture(scope="module")
def catalog(tmp_path_factory) -> Path:
    return written(tmp_path_factory.mktemp("shots") / "catalog.duckdb", list(planted()))


def of(catalog: Path) -> Contents:
    return read_contents(catalog, "s").of("toy_llama")


@pytest.fixture(scope="module")
def pictures(catalog) -> list[ET.Element]:
    section = by_shots(of(catalog))
    return [ET.fromstring(found) for found in re.findall(r"<svg.*?</svg>", section, re.DOTALL)]


def marks(pictures: list[ET.Element], fact: str) -> list[tuple[Mark, float, float]]:
    """Return the elements with this data attribute: attributes, and x and y in pixels."""
    found = []
    for part in (part for picture in pictures for part in picture.iter()):
        if f"data-{fact}" in part.attrib:
            x, y = map(float, re.findall(r"[-\d.]+", part.attrib["transform"]))
            found.append((part.attrib, x, y))
    return found


def shown(pictures: list[ET.Element], *facts: str) -> set[tuple[Any, ...]]:
    return {
        (
            mark["data-method"],
            mark["data-frozen"] == "true",
            *(round(float(mark[f"data-{fact}"]), 10) for fact in facts),
        )
        for mark, _, _ in marks(pictures, facts[-1])
    }


def test_every_mark_is_the_mean_of_all_planted_answers(pictures):
    answers: dict[tuple[Any, ...], list[float]] = {}
    for one in planted():
        answers.setdefault((one.method, one.frozen, int(one.task[6:])), []).extend(one.scores)
    whole = {
        (*key, round(float(np.mean(all_of)), 10))
        for key, all_of in answers.items()
        if len(all_of) == 3 * ORDERS * QUESTIONS
    }
    assert shown(pictures, "x", "value") == whole


def test_marks_and_chance_are_at_the_positions_of_their_numbers(pictures):
    for picture in pictures:
        found = marks([picture], "value")
        values = [float(mark["data-value"]) for mark, _, _ in found]
        decades = [math.log10(float(mark["data-x"])) for mark, _, _ in found]
        slope, start = np.polyfit(values, [y for _, _, y in found], 1)
        assert slope < 0
        assert np.allclose([y for _, _, y in found], start + slope * np.array(values), atol=0.02)
        rate, left = np.polyfit(decades, [x for _, x, _ in found], 1)
        assert rate > 0
        assert np.allclose([x for _, x, _ in found], left + rate * np.array(decades), atol=0.02)
        (level,) = (one for one in picture.iter() if one.get("class") == "landmark")
        (height,) = re.findall(r"M[\d.]+ ([\d.]+)H", level.attrib["d"])
        assert float(height) == pytest.approx(start + slope / len(CLASSES), abs=0.05)
        assert "chance" in [part.text for part in picture.iter()]


def test_with_one_seed_the_interval_is_over_prompts(tmp_path):
    answers = [1.0, 0.0, 0.0, 0.0] * (2 * QUESTIONS)  # eight orders
    cells = [cell("pi", True, 0, count, answers, profile="tiny") for count in (10, 25)]
    section = by_shots(of(written(tmp_path / "catalog.duckdb", cells)))
    found = re.findall(r'data-value="0.25" data-lowest="([^"]+)" data-highest="([^"]+)"', section)
    bounds = stats.binomtest(2 * QUESTIONS, 8 * QUESTIONS).proportion_ci(method="exact")
    expected = [pytest.approx((bounds.low, bounds.high), abs=1e-4)] * 2
    assert [(float(low), float(high)) for low, high in found] == expected
    # The number of key tokens of the base model is unknown here.
    drawn = re.sub(r'data-[a-z-]+="[^"]*"', "", section)
    assert "landmark" not in drawn
    assert "hance" not in drawn


def test_markdown_has_the_picture(catalog, tmp_path):
    page = write_markdown(catalog, "s", tmp_path / "report")
    (name,) = re.findall(r"!\[many-shot[^\]]*512 tokens\]\(([^)]+)\)", page.read_text("utf-8"))
    parts = list(ET.parse(page.with_name(name)).iter())
    texts = [part.text for part in parts if part.tag.endswith("text")]
    assert {"pi", "pi tuned", "yarn tuned", "1", "100"} <= set(texts)
    assert "chance" in texts


variants = st.sampled_from(("none", "pi", "yarn"))
drawn_rows = st.lists(
    st.tuples(variants, st.booleans(), st.sampled_from((4, 8, 16)), st.integers(1, 40)), unique=True
)


@given(drawn_rows)
def test_each_method_is_at_its_own_lengths_with_every_control(drawn):
    names = ("method", "frozen", "eval_length", "shots")
    rows = [{**dict(zip(names, one, strict=True)), "value_of_done": 0.5} for one in drawn]
    methods = [row for row in rows if row["method"] != "none"]
    found = dict(pictured(rows))
    for length, beside in found.items():
        counts = [row["shots"] for row in beside]
        assert len(set(counts)) > 1
        assert spans_a_decade(beside) == (max(counts) / min(counts) > 10)
        own = select(methods, eval_length=length)
        assert [row for row in own if row in beside] == own
        assert all(row in own for row in beside if row["method"] != "none")
        for frozen in (True, False):
            known = {row["eval_length"] for row in select(rows, method="none", frozen=frozen)}
            at = {row["eval_length"] for row in select(beside, method="none", frozen=frozen)}
            if methods:
                assert at == ({length} if length in known else {max(known)} if known else set())
    for length in {row["eval_length"] for row in methods} - set(found):
        assert len({row["shots"] for row in select(methods, eval_length=length)}) == 1
