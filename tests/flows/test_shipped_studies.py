"""Shipped studies plan without a hole, have the cells of their papers' tables, and shrink whole.

Plans are made over small stand-ins of all data. The tables' rows are written out here once more.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from pathlib import Path

import pytest

from flows.settings import shipped_studies, study_path
from lce_core.study.plan import StudyPlan, compile_study
from lce_core.study.study_file import load_study
from tests.support.shrunk_studies import study_folders

pytestmark = pytest.mark.slow

BEYOND_REACH = r"eval length \d+ exceeds the \d+ tokens that \w+ supports"
"""A reason for which a cell may be unavailable where all data are there."""
NO_WEIGHTS = r"checkpoint \w+: got no folder of that name; .*"
"""The other one: the weights of a large model, which others published, are not."""
K = 1024
RULER = [
    *("niah_single_1", "niah_single_2", "niah_single_3"),
    *("niah_multikey_1", "niah_multikey_2", "niah_multikey_3", "niah_multivalue"),
    *("niah_multiquery", "vt", "cwe", "fwe", "qa_1", "qa_2"),
]
LENGTHS = [2 * K, 4 * K, 8 * K, 16 * K, 32 * K, 64 * K]
FROZEN = {"none", "ntk_frozen", "self_extend", "lm_infinite"}


def planned(name: str, folder: Path) -> StudyPlan:
    study = load_study(study_path(name))
    return compile_study(study, study_folders(study, folder))


@pytest.mark.parametrize("name", shipped_studies())
def test_with_all_data_nothing_is_out_of_reach_but_for_a_method(name: str, tmp_path: Path) -> None:
    plan = planned(name, tmp_path)
    assert plan.cells
    reasons = {cell.unavailable for cell in plan.cells if cell.unavailable}
    assert [
        reason for reason in reasons if not re.fullmatch(f"{BEYOND_REACH}|{NO_WEIGHTS}", reason)
    ] == []


def test_lceg_on_llama_has_every_cell_of_its_tables(tmp_path: Path) -> None:
    plan = planned("lceg-llama2-7b", tmp_path)
    others = ["ntk_frozen", "self_extend", "lm_infinite", "pi", "ntk_32k", "yarn", "clex"]
    others += ["longlora", "landmark", "ntk_64k"]
    table = {  # benchmark: (methods, tasks, lengths) of Tables 2, 3 and 12-16, 4 and 11, 1
        "perplexity": [(["none", *others], ["pg19", "proof_pile"], LENGTHS)],
        "ruler": [(["none"], RULER, [4 * K]), (others, RULER, LENGTHS[1:])],
    }
    cells = {(c.benchmark, c.method, c.task, c.eval_length) for c in plan.cells}
    for benchmark, blocks in table.items():
        for block in blocks:
            assert {(benchmark, *cell) for cell in itertools.product(*block)} <= cells
    count = Counter((c.benchmark, c.method, c.eval_length) for c in plan.cells)
    for benchmark, tasks in (("longbench", 16), ("many_shot", 15)):
        assert count[benchmark, "none", 4 * K] == tasks
        assert all(count[benchmark, method, 32 * K] == tasks for method in others)
    needle = {c.eval_length for c in plan.cells if c.benchmark == "needle" and c.method == "pi"}
    # 40 lengths from 1,000 to 128,000, those below 64,000.
    assert needle == {round(1000 + i * 127000 / 39) for i in range(40)} & set(range(64000))
    assert len(needle) == 20
    trained = {(c.method, c.train_length) for c in plan.cells}
    rows = dict.fromkeys(FROZEN, 4 * K)
    rows |= dict.fromkeys(("ntk_64k", "ntk_64k_2b"), 64 * K)
    assert trained == {(method, rows.get(method, 32 * K)) for method, _ in trained}


def test_lceg_on_phi_has_every_cell_of_its_tables(tmp_path: Path) -> None:
    plan = planned("lceg-phi2", tmp_path)
    others = ["ntk_frozen", "self_extend", "pi", "ntk_32k", "clex", "ntk_64k"]
    expected = {  # Tables 5 and 6
        *itertools.product(["none", *others], ["perplexity"], ["proof_pile"], LENGTHS),
        *itertools.product(others, ["ruler"], RULER[:-1], LENGTHS),
        *itertools.product(["none"], ["ruler"], RULER[:-1], [2 * K]),
    }
    assert {(c.method, c.benchmark, c.task, c.eval_length) for c in plan.cells} == expected


def test_runs_of_lceg_take_the_steps_that_its_code_takes(tmp_path: Path) -> None:
    plan = planned("lceg-llama2-7b", tmp_path)
    runs = {step.name: step.spec for step in plan.steps.values() if step.kind == "finetune"}
    found = {
        name.removeprefix("llama2_7b-").removesuffix("-tuned-s0"): (
            spec["num_steps"],
            spec["training"]["tokens_per_step"] // spec["row_length"],
        )
        for name, spec in runs.items()
    }
    ordinary = dict.fromkeys(("pi", "ntk_32k", "yarn", "clex", "longlora"), (120, 256))
    assert found == ordinary | {
        "landmark": (7693, 256 * 512 // 32768),  # sequences of 512 tokens
        "ntk_64k": (60, 256),
        "ntk_64k_2b": (120, 256),
        "longlora_own": (1000, 64),
    }
