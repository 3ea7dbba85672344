"""YAML that would hang a reader or end it in a traceback, and bounds of whole studies."""

import contextlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.settings import STUDIES, make_execution, named_folders, study_path
from lce_core.errors import DataError, SpecError
from lce_core.store.steps import MAX_NAME_BYTES
from lce_core.study.lock import Lock
from lce_core.study.plain_yaml import MAX_CHARS, beginning_of, plain_yaml
from lce_core.study.study_file import load_study, parse_study
from tests.support.free_steps import free_step

SMOKE = (STUDIES / "smoke.yaml").read_text(encoding="utf-8")
SEEDS = "seeds: [0]"
TOKENS = "train_tokens: 8192"
LENGTHS = "lengths: [128, 256], num"
LAUGHS = "a: &a [x, x, x]\n" + "".join(
    f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]\n"
    for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)


def refusal(text: str) -> str:
    with pytest.raises(SpecError) as caught:
        parse_study(text, "my.yaml")
    message = str(caught.value)
    assert message.startswith("my.yaml")
    assert len(message) < 1000
    return message


# Without bounds a reader needs minutes for some of these, or all memory.
@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("study: " + "[" * 3000 + "]" * 3000, "my.yaml:1: got more than 32 levels of nesting"),
        ("seeds: [" + "9" * 5000 + "]", "my.yaml:1: got an integer of 5,000 characters"),
        ("seeds: [1" + ":59" * 3000 + "]", "at most 40 digits"),
        ("seeds: [" + "1, " * 30_000 + "]", "at most 20,000"),
        ("seeds: [" + " " * 600_000 + "]", "more than 524,288 characters"),
        (LAUGHS, "my.yaml:2: got alias *a is used"),
        ("seeds: 2020-99-99", "got '2020-99-99', which is not a valid timestamp"),
        ("seeds: !!int x", "got 'x', which is not a valid int"),
        ("seeds: \x00", "plain YAML"),
        ("seeds: [4]\nseeds: [4]", "my.yaml:2: got key 'seeds' is given twice"),
        ("1: 2", "not text"),
    ],
)
def test_yaml_that_no_honest_file_has_is_refused(text, says):
    assert says in refusal(text)


@pytest.mark.parametrize("text", ["1e9", "1.0e9", "1.0e+9", "1_000_000_000", "'1e9'", "0_1e9"])
def test_a_whole_number_may_be_written_in_any_usual_way(text):
    study = SMOKE.replace(TOKENS, f"train_tokens: {text}")
    if text[0] in "'0":
        advice = re.search(r"write (\S+) without quotes", refusal(study))
        assert advice
        study = study.replace(text, advice[1])
    assert parse_study(study, "my.yaml").train_tokens == 10**9


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(("1e-4", 0.0001), ("9007199254740993e0", 2**53 + 1), ("1.5e0", 1.5), ("1e30", 1e30)),
        *((text, text.strip("'")) for text in ("1e5abc", "01e5", "e5", "'1e5'")),
    ],
)
def test_numbers_with_an_exponent_are_exact_and_other_texts_with_an_e_remain_text(text, value):
    found = plain_yaml(text, "f")
    assert (found, type(found)) == (value, type(value))


# YAML 1.1 reads these as 8, -8, 90 and 90.5.
@pytest.mark.parametrize("text", ["010", "-010", "1:30", "1:30.5"])
def test_a_number_that_yaml_reads_as_another_is_refused_with_advice_that_works(text):
    with pytest.raises(SpecError, match="which YAML reads as") as caught:
        plain_yaml(text, "f")
    for one in re.findall(r"(?:write|or) (\S+?)(?:,| if|$)", str(caught.value)):
        plain_yaml(one, "f")


@pytest.mark.parametrize("name", ["no", "on", "3", "1e9"])
def test_a_name_that_yaml_reads_as_another_type_needs_quotes(name):
    assert "put the value in quotes" in refusal(SMOKE.replace("study: smoke", f"study: {name}"))
    assert parse_study(SMOKE.replace("study: smoke", f"study: '{name}'"), "my.yaml").study == name


@given(st.text(alphabet="ab:-[]{},&*!'\"#|>%@\n 0159.xe~\t\x85\u2028", max_size=200))
def test_any_text_is_read_or_refused_with_one_error(text):
    with contextlib.suppress(SpecError):
        plain_yaml(text, "drawn")


def test_of_a_huge_file_only_the_beginning_is_read(tmp_path):
    file = tmp_path / "huge.yaml"
    with file.open("wb") as opened:
        opened.truncate(1 << 40)
    assert len(beginning_of(file)) == MAX_CHARS + 1
    with pytest.raises(SpecError, match="at most 524,288 characters"):
        load_study(file)


@pytest.mark.parametrize(
    ("edits", "says"),
    [
        ({"study: smoke": f"study: {'a' * 300}"}, "study: got 'aaa.*at most 100 characters"),
        (
            {"{name: none}": f"{{name: none, label: {'a' * 300}}}"},
            r"methods\[0\].label: .*at most 64",
        ),
        ({SEEDS: f"seeds: {[*range(2000)]}"}, "seeds: got .*with at most 1000 items"),
        (
            {SEEDS: f"seeds: {[*range(200)]}", LENGTHS: f"lengths: {[*range(1, 5001)]}, num"},
            r"benchmarks: got 3,001,200 cells \(1 base models x 200 seeds .*at most 250,000 cells",
        ),
    ],
)
def test_studies_too_large_or_with_names_too_long_are_refused_by_key_and_limit(edits, says):
    text = SMOKE
    for old, new in edits.items():
        text = text.replace(old, new)
    assert re.search(says, refusal(text))


def test_a_step_is_named_so_that_a_folder_can_be():
    assert len(free_step("rows", "a" * MAX_NAME_BYTES, {}, {}).folder.encode()) < 255
    with pytest.raises(SpecError, match="because a folder is named after it"):
        free_step("rows", "é" * MAX_NAME_BYTES, {}, {})


def test_execution_files_are_bounded_as_study_files_are(tmp_path):
    (tmp_path / "execution.yaml").write_text("[" * 3000, encoding="utf-8")
    with pytest.raises(SpecError, match="levels of nesting"):
        make_execution({}, tmp_path / "execution.yaml")


@pytest.mark.parametrize("value", [".nan", ".inf", "1e400"])
def test_values_are_finite_in_study_and_execution_files(value, tmp_path):
    assert "expected a finite number" in refusal(SMOKE.replace("5.0e-4", value))
    assert "expected a finite number" in refusal(SMOKE.replace("window: 64", f"window: {value}"))
    file = tmp_path / "execution.yaml"
    file.write_text(f"checkpoint_seconds: {value}", encoding="utf-8")
    with pytest.raises(SpecError, match=r"finite number|greater than 0"):
        make_execution({}, file)


def test_names_longer_than_a_file_system_takes_are_no_files():
    name = "a" * 300
    with pytest.raises(SpecError, match="a shipped study"):
        study_path(name)
    with pytest.raises(SpecError, match="no such file"):
        study_path(f"{name}.yaml")
    with pytest.raises(SpecError, match="an existing folder"):
        named_folders([f"toy={name}"], "--model-folder")


@pytest.mark.parametrize("value", ["9" * 5000, "[" * 3000 + "]" * 3000])
def test_a_lock_that_json_readers_stumble_over_is_no_lock(value):
    text = '{"format": 1, "study": "s", "kinds": {}, "plugins": {}, "data": {}, "steps": {}'
    with pytest.raises(DataError, match="not a lock"):
        Lock.parse(f'{text}, "parts": {{"a b": {{"x": {value}}}}}}}', "study.lock")
