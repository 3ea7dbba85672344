"""`lce rope` as a user calls it; wavelengths, turns and bounds are recomputed by hand."""

import json
import math
import re
from typing import Any

import pytest
from typer.testing import CliRunner

from lce.cli import app

LLAMA = [2 * math.pi * 10_000 ** (i / 64) for i in range(64)]
"""Wavelengths in tokens of Llama-2-7B."""


def asked(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["rope", *arguments], env={"COLUMNS": "80"})
    assert result.exit_code == 0, result.output + repr(result.exception)
    return result.stdout


def data(*arguments: str) -> Any:
    return json.loads(asked(*arguments, "--json"))


def test_bounds_and_bases_are_the_known_integers():
    assert "L_theta = 27,114 tokens" in asked("bound", "--base", "1e6", "--dim", "128")
    found = data("bound", "--base", "1e6")
    assert found == {"base": 1e6, "dim": 128, "length": 27114, "searched": 1 << 24}
    found = data("base", "--length", "4000")
    expected = {"length": 4000, "dim": 128, "digits": 2, "base": 27000.0, "every_from": 58000.0}
    assert found == expected | {"above": pytest.approx(636.61977), "below": 8388608}


def test_pairs_of_a_method_are_shown_with_wavelengths_turns_and_state():
    found = data("inspect", "yarn", "--model", "llama2_7b", "--target", "32768")
    assert (found["trained_tokens"], found["request_tokens"]) == (4096, 32768)
    assert found["attention_factor"] == pytest.approx(0.1 * math.log(8) + 1)
    (head,) = found["heads"]
    assert (head["bound"], found["base_model"]["bound"]) == (8885, 1706)
    pairs = head["pairs"]
    assert [pair["wavelength_before"] for pair in pairs] == pytest.approx(LLAMA)
    # YaRN keeps what turns at least 32 times in 4,096 tokens and divides by 8 what turns less than
    # once, between the whole indices around both.
    assert [pair["state"] for pair in pairs] == ["unchanged"] * 21 + ["interpolated"] * 43
    assert [pair["wavelength_after"] for pair in pairs[46:]] == pytest.approx(
        [8 * wave for wave in LLAMA[46:]]
    )
    assert [pair["pair"] for pair in pairs if pair["beyond_bound"]] == list(range(42, 64))
    assert pairs[63]["turns_trained"] == pytest.approx(4096 / LLAMA[63])
    assert pairs[63]["turns_request"] == pytest.approx(32768 / (8 * LLAMA[63]))


@pytest.mark.parametrize("method", ["yarn", "dca", "dynamic_pi"])
def test_every_method_is_shown_in_80_columns(method):
    said = asked("inspect", method, "--target", "32768")
    assert max(map(len, said.splitlines())) <= 80
    assert "L_theta" in said


def test_pairs_without_rotation_are_named_and_have_no_wavelength(tmp_path):
    (head,) = data("inspect", "hard_clip", "--target", "32768")["heads"]
    clipped = [pair for pair in head["pairs"] if pair["state"] == "no rotation"]
    assert [pair["pair"] for pair in clipped] == list(range(44, 64))
    assert {pair["wavelength_after"] for pair in clipped} == {None}
    assert {pair["turns_request"] for pair in clipped} == {0}
    picture = tmp_path / "picture.svg"
    said = asked("inspect", "hard_clip", "--target", "32768", "--out", str(picture))
    assert len(re.findall(r" inf +inf .* no rotation", said)) == 20
    assert picture.read_text("utf-8").count('<circle class="dot') == 44


def test_parameters_are_given_as_in_a_study():
    found = data("inspect", "pi", "--set", "scale=2.5", "--target", "8192")
    assert found["method"]["scale"] == 2.5
    (head,) = found["heads"]
    ratios = [pair["wavelength_after"] / pair["wavelength_before"] for pair in head["pairs"]]
    assert ratios == pytest.approx([2.5] * 64)


def test_notes_say_what_depends_on_the_length():
    follows = "The method depends on the request length (--request)."
    assert data("inspect", "string")["notes"][1] == follows
    scaled = "Scores of a query that sees n tokens are multiplied by ln n / ln 4,096, at least 1."
    assert data("inspect", "pi", "--set", "logit_scale=log_length")["notes"] == [scaled]


def test_a_method_that_changes_attention_alone_says_so():
    said = asked("inspect", "self_extend", "--target", "32768")
    assert "window 1024, group 64" in said
    assert "extrapolated" not in said
    found = data("inspect", "self_extend", "--target", "32768")
    assert (found["changes_frequencies"], found["heads"]) == (False, [])
    assert found["attention"] == "GroupedNeighbour"


def test_the_picture_has_a_wavelength_for_each_head_their_least_margin_and_what_extrapolates(
    tmp_path,
):
    def drawn(*arguments: str) -> str:
        file = tmp_path / "made" / "one.svg"
        asked("inspect", *arguments, "--out", str(file))
        return file.read_text("utf-8")

    one = drawn("none", "--target", "32768")
    assert one.count('class="dot extrapolated"') == sum(wave > 4096 for wave in LLAMA)
    assert one.count('<circle class="dot') == 64
    assert "L_theta 1,706" in one
    heads = drawn("harpe", "--target", "8192")
    assert heads.count('class="method many"') == 32
    assert (heads.count('class="band"'), heads.count('class="method"')) == (1, 1)
    assert heads.count('class="base"') == 2
    assert 'class="method"' not in drawn("self_extend", "--target", "32768")
