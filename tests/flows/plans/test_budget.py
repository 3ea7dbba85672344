"""What a budget pays for: whole blocks over all methods, never too dear."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from flows.plans.budget import Block, Budget, Chosen, within_budget
from flows.plans.pricing import prices_of
from flows.settings import STUDIES, make_execution
from lce.views.planning import Inspection, inspect_study
from lce_core.errors import SpecError
from tasks.machines import Machines
from tests.support.free_steps import write_file

SMOKE: dict[str, Any] = yaml.safe_load((STUDIES / "smoke.yaml").read_text(encoding="utf-8"))
STUDY = {**SMOKE, "methods": [*SMOKE["methods"], {"name": "pi", "tuned": True}], "seeds": [1, 0]}


@pytest.fixture(scope="module")
def found(tmp_path_factory) -> Inspection:
    return looked_up(tmp_path_factory.mktemp("budget"))


def looked_up(folder: Path) -> Inspection:
    file = folder / "study.yaml"
    file.write_text(yaml.safe_dump(STUDY), encoding="utf-8")
    return inspect_study(str(file), make_execution({"home": folder / "home", "slots": 2}))


def chosen(found: Inspection, budget: str) -> Chosen:
    return within_budget(found.plan, found.states, found.execution, budget, None)


def everything(found: Inspection) -> Chosen:
    return chosen(found, "1000gpuh")


def places(blocks: tuple[Block, ...]) -> list[tuple[int, str, int]]:
    return [(block.seed, block.benchmark, block.eval_length) for block in blocks]


def test_a_budget_is_a_positive_number_and_a_unit():
    for text, hours, unit in (("8gpuh", 8, "gpuh"), ("0.5 cpuh", 0.5, "cpuh"), (".25", 0.25, "h")):
        budget = Budget.parse(text)
        assert (budget.hours, budget.unit) == (hours, unit)
        assert Budget.parse(str(budget)) == budget
    for text in ("", "8 gpus", "-8gpuh", "0h", "8,5h", "nan", "infh", "8hh"):
        with pytest.raises(SpecError, match="8gpuh, 100cpuh"):
            Budget.parse(text)


def test_blocks_go_seed_by_seed_and_from_short_to_long(found):
    assert places(everything(found).taken) == [
        (seed, benchmark, length)
        for seed in (1, 0)
        for length in (128, 256)
        for benchmark in ("perplexity", "passkey")
    ]


@given(share=st.floats(0.01, 1.2))
def test_whole_blocks_are_taken_and_cost_no_more_than_allowed(found, share):
    whole = everything(found)
    try:
        part = chosen(found, f"{share * whole.hours:.15f}gpuh")
    except SpecError:
        assert share < 0.5  # of the dear training that the first block needs
        return
    budget = part.budget.hours
    assert part.hours <= budget
    prices = prices_of(part.plan, found.states, found.execution, "a100")
    todo = [s for p, s in part.plan.steps.items() if found.states[p].state == "missing"]
    least = prices.total(todo).seconds / 3600
    # Blocks share forward passes, which are paid again, and training, which is most and paid once.
    assert least <= part.hours * (1 + 1e-9) <= 1.2 * least
    assert sorted(places(part.taken + part.left_out)) == sorted(places(whole.taken))
    # Over all methods, with all that they need.
    taken = set(places(part.taken))
    cells = [c for c in found.plan.cells if (c.seed, c.benchmark, c.eval_length) in taken]
    assert list(part.plan.cells) == cells
    for step in part.plan.steps.values():
        assert set(step.parents.values()) <= set(part.plan.steps)
    assert all(cell.step.fingerprint in part.plan.steps for cell in cells if cell.step)
    again = chosen(found, f"{share * whole.hours:.15f}gpuh")
    assert (again.taken, again.hours) == (part.taken, part.hours)


def test_too_little_says_the_price_of_the_cheapest_block_which_then_pays_for_it(found):
    with pytest.raises(SpecError) as raised:
        chosen(found, "0.000000001gpuh")
    told = raised.value.expected
    assert "of the cheapest block (toy_llama" in told
    assert chosen(found, told.split()[2].rstrip(",")).taken


def test_what_is_done_costs_nothing_and_the_next_run_goes_on(tmp_path):
    before = looked_up(tmp_path)
    whole = everything(before)
    half = f"{0.6 * whole.hours:.15f}gpuh"
    first = chosen(before, half)
    assert first.taken
    assert first.left_out

    for step in first.plan.steps.values():
        before.store.ensure(step, write_file, {"threads": 1, "device": "cpu"})
    after = looked_up(tmp_path)
    second = chosen(after, half)
    assert places(second.taken) == places(first.left_out)
    assert not second.left_out
    # What is done stays in the plan, so that the run's table has it.
    assert len(second.plan.cells) == len(after.plan.cells)


def test_hours_on_the_clock_are_shared_by_slots(found):
    workers, clock = chosen(found, "1000cpuh"), chosen(found, "1000h")
    assert clock.hours == pytest.approx(workers.hours / 2, rel=1e-6)
    assert (workers.device, everything(found).device) == ("cpu", "a100")
    # A run on all GPUs of a machine takes all of its time; it is no faster by being counted so.
    execution = found.execution.model_copy(update={"processes": 2})
    trained = within_budget(found.plan, found.states, execution, "1000h", "h100")
    alone = within_budget(found.plan, found.states, found.execution, "1000h", "h100")
    assert trained.hours == pytest.approx(alone.hours, rel=1e-6)


def test_hours_on_the_clock_are_of_the_slots_that_the_plan_shows(found, monkeypatch):
    def hours(unit: str, **options: Any) -> float:
        how = make_execution({"home": found.execution.home, **options})
        return within_budget(found.plan, found.states, how, f"1000{unit}", "h100").hours

    # This machine's cores are no H100s: the plan assumes one, unless the user names a number.
    assert hours("h") == pytest.approx(hours("gpuh"), rel=1e-6)
    here = Machines(gpus=(8,), cpus=8, gpu_name="NVIDIA H100")
    monkeypatch.setattr("flows.plans.pricing.machines_for", lambda _: here)
    # The only slot of this run has eight GPUs.
    eight = hours("h", slots=1, processes=8)
    assert eight == pytest.approx(hours("gpuh", slots=1, processes=8) / 8, rel=1e-6)


def test_what_waits_for_data_is_in_no_block_and_said(tmp_path):
    corpus = {"name": "jsonl_folder", "folder": "text", "domain_names": ["code"]}
    file = tmp_path / "study.yaml"
    file.write_text(yaml.safe_dump({**STUDY, "corpus": corpus}), encoding="utf-8")
    found = inspect_study(str(file), make_execution({"home": tmp_path / "home", "slots": 2}))
    budgeted = everything(found)
    assert (budgeted.taken, budgeted.hours) == ((), 0)
    assert f"{len(found.plan.cells)} cells are not priced" in "\n".join(budgeted.lines())
