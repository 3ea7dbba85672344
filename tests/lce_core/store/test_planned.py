"""Each version of a study's expectations is registered with the number of results before it."""

import json
from typing import Any

import pytest

from lce_core.errors import SpecError
from lce_core.store.study_folders import (
    EXPECTATIONS,
    StudyFolders,
    amendments,
    register,
    registrations,
)

PLAN: dict[str, Any] = {
    "study": "s",
    "hypothesis": "YaRN wins.",
    "expects": [],
    "cells": [
        {
            "cell": name,
            "base_model": "toy_llama",
            "method": method,
            "frozen": True,
            "benchmark": "perplexity",
            "eval_length": 512,
        }
        for name, method in (("a", "none"), ("b", "yarn"), ("c", "pi"), (None, "ntk"))
    ],
}
COMPARISON = {
    "entry": 0,
    "text": "YaRN is better.",
    "base_model": "toy_llama",
    "method": "yarn",
    "frozen": True,
    "expected": "better",
    "margin": None,
    "other_method": "pi",
    "other_frozen": True,
    "benchmark": "perplexity",
    "eval_length": 512,
}


def test_a_version_is_registered_once_and_a_change_counts_the_results_before_it(tmp_path):
    register(tmp_path, PLAN, {"z"})
    register(tmp_path, PLAN, {"a"})
    changed = {**PLAN, "expects": [COMPARISON]}
    register(tmp_path, changed, {"a", "z"})
    register(tmp_path, {**PLAN, "hypothesis": None}, {"a", "b"})
    found = registrations(tmp_path)
    assert [one["results_before"] for one in found] == [0, 1, 2]
    assert [one["expects"] for one in found] == [[], [COMPARISON], []]
    assert [one["hypothesis"] for one in found] == ["YaRN wins.", "YaRN wins.", None]
    assert len({one["sha256"] for one in found}) == 3


@pytest.mark.parametrize(
    ("comparison", "held", "results"),
    [
        (COMPARISON, {"a", "b"}, 0),
        (COMPARISON, {"a", "b", "c"}, 3),
        ({**COMPARISON, "eval_length": 256}, {"b", "c"}, 0),
        ({**COMPARISON, "method": None, "other_method": None}, {"a"}, 0),
        ({**COMPARISON, "method": None, "other_method": None}, {"a", "b"}, 2),
    ],
)
def test_results_of_other_studies_count_if_they_show_a_comparison(
    comparison, held, results, tmp_path
):
    register(tmp_path, PLAN | {"expects": [comparison]}, held)
    changed = PLAN | {"hypothesis": None, "expects": [comparison]}
    register(tmp_path, changed, held)
    assert [one["results_before"] for one in registrations(tmp_path)] == [results, results]


def test_a_dropped_method_does_not_hide_the_studys_own_results(tmp_path):
    """`a` is another study's result, `b` and `c` are this one's, which the last version drops."""
    register(tmp_path, PLAN | {"expects": [COMPARISON]}, {"a"})
    kept = {"cells": PLAN["cells"][:2], "expects": []}
    register(tmp_path, PLAN | kept, {"a", "b", "c"})
    assert [one["results_before"] for one in registrations(tmp_path)] == [0, 2]
    other = {"cells": PLAN["cells"][:2], "expects": [{**COMPARISON, "other_method": "ntk"}]}
    register(tmp_path, PLAN | other, {"a", "b", "c"})
    assert registrations(tmp_path)[2]["results_before"] == 1


@pytest.mark.parametrize("num_renamings", [1, 2])
def test_results_count_after_all_cells_have_other_ids(tmp_path, num_renamings):
    studies, cells = StudyFolders(tmp_path), PLAN["cells"]
    studies.save_plan("s", PLAN | {"steps": ["a", "b", "c"]}, "s.yaml")
    for name in "abc":
        (tmp_path / "artifacts" / "cell" / name).mkdir(parents=True)
    for number in range(num_renamings):
        renamed = [cell | {"cell": cell["cell"] and cell["cell"] + str(number)} for cell in cells]
        flipped = {"expects": [COMPARISON]} if number == num_renamings - 1 else {}
        studies.save_plan("s", PLAN | {"steps": [], "cells": renamed} | flipped, "s.yaml")
    found = registrations(tmp_path / "studies" / "s")
    assert [one["results_before"] for one in found] == [0, 3]


@pytest.mark.parametrize("content", ["{", '{"registrations": [{"at": 3}]}'])
def test_a_damaged_file_proves_nothing_and_is_replaced(tmp_path, content):
    (tmp_path / EXPECTATIONS).write_text(content)
    assert registrations(tmp_path) == []
    register(tmp_path, PLAN, {"a"})
    (only,) = registrations(tmp_path)
    assert only["results_before"] == 1
    assert json.loads((tmp_path / EXPECTATIONS).read_text())["registrations"] == [only]
    (kept,) = tmp_path.glob("*.damaged.json")
    assert kept.read_text() == content


def test_a_registration_of_another_study_is_refused(tmp_path):
    register(tmp_path, PLAN, {})
    with pytest.raises(SpecError, match="the study s; expected that of other"):
        register(tmp_path, PLAN | {"study": "other"}, {})


def test_changes_after_a_result_are_named_and_those_before_are_not(tmp_path):
    design = {"seed": ["0", "1", "2"], "method": ["none", "yarn"]}
    changed = {"seed": ["0", "1"], "method": ["none", "yarn", "pi"]}
    register(tmp_path, PLAN, {})
    register(tmp_path, PLAN | {"expects": [COMPARISON], "design": design}, {})
    register(tmp_path, PLAN | {"expects": [COMPARISON], "design": design}, {"a"})
    register(tmp_path, PLAN | {"expects": [], "design": changed}, {"a", "b"})
    # The place in `expects` and the weight are no part of a comparison, but its length is.
    longer = [COMPARISON, COMPARISON | {"eval_length": 4096}]
    moved = [{**longer[1], "entry": 1, "weight": 1.0}, COMPARISON | {"entry": None}]
    for expects in (longer, moved):
        register(tmp_path, PLAN | {"expects": expects, "design": changed}, {"a", "b"})
    found = registrations(tmp_path)
    assert len(found) == 5
    assert [(version["results_before"], change) for version, change in amendments(found)] == [
        (2, "expectation withdrawn: YaRN is better."),
        (2, "method pi added"),
        (2, "seed 2 dropped"),
        (2, "expectation added: YaRN is better."),
        (2, "expectation withdrawn at 512 tokens: YaRN is better."),
    ]
