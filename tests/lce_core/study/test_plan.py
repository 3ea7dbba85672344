"""Plans change exactly where the study changes; states say what is missing and why."""

import json
from collections import Counter
from typing import Any

import pytest
import yaml

from flows.selection import select_cells
from lce_core.errors import NonFiniteError, SpecError, UnavailableError
from lce_core.statistics.estimates import INTERVALS
from lce_core.store.artifacts import Store
from lce_core.store.steps import Step
from lce_core.study.plan import StudyPlan, compile_study
from lce_core.study.progress import inspect
from lce_core.study.step_kinds import KINDS, spec_of
from lce_core.study.study_file import parse_study
from lce_core.study.units import abandoned, dearest_first, units_to_do
from tests.support.file_events import listed
from tests.support.free_steps import write_file
from tests.support.toy_study import TOY as WHOLE

ROWS = ("none", "self_extend", "pi", "yarn")
TOY: dict[str, Any] = {
    **WHOLE,
    "methods": [entry for entry in WHOLE["methods"] if entry["name"] in ROWS],
    "benchmarks": WHOLE["benchmarks"][:4],
}
"""The shipped study with some of its rows and columns: seven rows of seventeen cells."""


def planned(**changes: Any) -> StudyPlan:
    study = parse_study(json.dumps({**TOY, "seeds": [0], **changes}), "toy.yaml")
    return compile_study(study, {}, where="toy.yaml")


def finish(store: Store, steps: list[Step]) -> None:
    for step in steps:
        store.ensure(step, write_file, {})


def test_looking_a_plan_up_lists_each_folder_once_however_much_is_missing(store):
    plan = planned(seeds=[0, 1])
    cells = [cell.step for cell in plan.cells if cell.step]
    finish(store, cells[:40:2])
    with listed(store.home) as folders:
        states = inspect(plan, store, {})
    artifacts = store.home / "artifacts"
    assert sorted(folders) == [str(artifacts), str(artifacts / "cell")]
    found = [step for step in cells if states[step.fingerprint].state == "done"]
    assert found == cells[:40:2]


def fingerprints(plan: StudyPlan, kind: str) -> set[str]:
    return {step.fingerprint for step in plan.steps.values() if step.kind == kind}


def test_stages_are_training_runs_in_a_row_that_other_rows_share():
    stages = {"name": "abf_multi_stage", "bases": [1e6, 2e6, 5e6], "tuned": True}
    first = {"name": "abf_single_stage", "base": 1e6, "tuned": True}
    plan = planned(methods=[stages], train_tokens=3 * 4096 * 10)
    base, *runs = [step for step in plan.steps.values() if step.kind in ("base", "finetune")]
    assert [step.name for step in runs] == [
        "toy_llama-abf_multi_stage-tuned-stage1-s0",
        "toy_llama-abf_multi_stage-tuned-stage2-s0",
        "toy_llama-abf_multi_stage-tuned-s0",
    ]
    assert [step.spec["row_length"] for step in runs] == [128, 256, 512]
    assert [step.spec["method"].get("base") for step in runs] == [1e6, 2e6, None]
    assert [step.spec["num_steps"] for step in runs] == [10, 10, 10]
    parents = [step.parents["base"] for step in runs]
    assert parents == [base.fingerprint, runs[0].fingerprint, runs[1].fingerprint]
    assert all(cell.checkpoint == runs[-1] for cell in plan.cells)
    alone = planned(methods=[first], target_context=128, train_tokens=4096 * 10)
    assert runs[0].fingerprint in fingerprints(alone, "finetune")


SCALED = {"logit_scale": "log_length"}


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"shares": [0.5, 0.5]}, "one positive fraction for each of the 3 bases"),
        ({"shares": [0.5, 0.6, 0.1]}, "1 in total"),
        ({"bases": [2.0] * 12}, "a target divisible by 2048"),
        ({"shares": [0.98, 0.01, 0.01]}, "at least one step of training"),
        (
            {"train_length": 128, "training": {"tokens_per_step": 128}},
            "128; expected a multiple of 256, the row length of a stage of abf_multi_stage-tuned",
        ),
        ({"tuned": False}, "only after training"),
        ({"name": "nope_hybrid", "every": 4}, "no layer that differs among the model's 2"),
        ({"name": "nope_hybrid", "every": 2, "layers": [0]}, "no layer that differs"),
        ({"name": "yarn", "layers": {"every": 4}}, "no layer that differs among the model's 2"),
        ({"name": "yarn", "layers": [0, 2]}, "layer 2 of 2"),
        ({"name": "clex", "layers": [0]}, "trained frequencies"),
        ({"name": "pi", "heads": [0, 9]}, "head 9 of"),
        ({"name": "pi", "heads": {"every": 99}}, "none of the model's"),
        ({"name": "none", "heads": [0]}, "a method that changes nothing"),
        ({"name": "yarn", "heads": [0]}, "an attention factor of"),
        ({"name": "dynamic_yarn", "heads": [0], "target_context": 128}, "an attention factor of"),
        ({"name": "landmark", "heads": [0]}, "a token inserted into texts"),
        ({"name": "longlora", "heads": [0]}, "the attention scheme ShiftedSparse, for all heads"),
        ({"name": "clex", **SCALED}, "'log_length' for trained frequencies"),
        ({"name": "landmark", **SCALED}, "'log_length' for the attention scheme BlockRetrieval"),
        ({"name": "longlora", **SCALED}, "'log_length' for the attention scheme ShiftedSparse"),
        ({"name": "nope_hybrid", "every": 2, **SCALED}, "'log_length' for .* scheme Sharpened"),
    ],
)
def test_training_that_cannot_be_is_refused(entry, message):
    with pytest.raises(SpecError, match=message):
        planned(methods=[{"name": "abf_multi_stage", "tuned": True, **entry}])


def finetunes(plan: StudyPlan) -> dict[str, Step]:
    """The fine-tuning runs of the plan's one seed by the name of their variant."""
    runs = [step for step in plan.steps.values() if step.kind == "finetune"]
    return {step.name.removeprefix("toy_llama-").removesuffix("-s0"): step for step in runs}


YARN: dict[str, Any] = {"name": "yarn", "tuned": True}


def test_an_entry_says_its_own_target_rows_tokens_and_training():
    own = {"target_context": 1024, "train_length": 256, "train_tokens": 8192}
    entry = {**YARN, **own, "label": "far", "training": {"learning_rate": 0.001}}
    plan = planned(methods=[YARN, entry, {"name": "pi", "target_context": 256}])
    near, far = (finetunes(plan)[name] for name in ("yarn-tuned", "far-tuned"))
    assert near.spec == finetunes(planned(methods=[YARN]))["yarn-tuned"].spec
    assert (far.spec["target_context"], far.spec["row_length"]) == (1024, 256)
    assert far.spec["num_steps"] == 8192 // TOY["training"]["tokens_per_step"]
    assert far.spec["training"] == {**near.spec["training"], "learning_rate": 0.001}
    rows = plan.steps[far.parents["rows"]].spec
    assert (rows["row_length"], rows["num_rows"]) == (256, 8192 // 256)
    assert {cell.method: (cell.target_context, cell.train_length) for cell in plan.cells} == {
        "yarn": (512, 512),
        "far": (1024, 256),
        "pi": (256, 128),
    }
    cells = [cell for cell in plan.cells if cell.step]
    assert all(cell.step.spec["target_context"] == cell.target_context for cell in cells)


def test_the_studys_own_values_written_in_an_entry_change_no_identity():
    written = {
        "target_context": TOY["target_context"],
        "train_length": TOY["target_context"],
        "train_tokens": TOY["train_tokens"],
        "training": {"learning_rate": TOY["training"]["learning_rate"]},
    }
    methods = [{**e, **written} if e.get("tuned") else e for e in TOY["methods"]]
    assert set(planned(methods=methods).steps) == set(planned().steps)


def test_a_run_starts_from_another_ones_weights_wherever_that_is_listed():
    further = {**YARN, "label": "yarn_2", "scale": 8.0, "start_from": "yarn-tuned"}
    plan = planned(methods=[further, YARN])
    runs = finetunes(plan)
    first, second = runs["yarn-tuned"], runs["yarn_2-tuned"]
    assert second.parents["base"] == first.fingerprint
    assert first.spec["method"].get("scale") is None
    alone = planned(methods=[{**further, "start_from": None}])
    assert finetunes(alone)["yarn_2-tuned"].fingerprint != second.fingerprint
    order = list(plan.steps)
    assert order.index(first.fingerprint) < order.index(second.fingerprint)


def test_weights_of_another_variant_are_evaluated_with_the_entrys_own_method():
    trained = {**YARN, "train_length": 256}
    other = {"name": "yarn", "label": "at_8", "scale": 8.0, "weights_of": "yarn-tuned"}
    again = {"name": "yarn", "label": "again", "weights_of": "yarn-tuned"}
    plan = planned(methods=[other, "none", trained, again])
    (training,) = finetunes(plan).values()
    of: dict[tuple[str, bool], Any] = {(c.method, c.frozen): c for c in plan.cells}
    assert set(of) == {("at_8", False), ("none", True), ("yarn", False), ("again", False)}
    for name in ("at_8", "yarn"):
        cell = of[name, False]
        assert cell.checkpoint == training
        assert cell.train_length == 256
        assert cell.step.parents["checkpoint"] == training.fingerprint
    assert of["at_8", False].step.spec["method"]["scale"] == 8.0
    # Equal weights, method and parameters are the same cell.
    assert of["again", False].step.fingerprint == of["yarn", False].step.fingerprint
    assert set(planned(methods=["none", trained]).steps) < set(plan.steps)


def test_a_benchmark_may_be_listed_twice_and_be_asked_of_some_methods_alone():
    passkey = {"name": "passkey", "profile": "tiny", "num_samples": 60, "lengths": [128]}
    some = {**passkey, "num_samples": 20, "lengths": [256, 512], "methods": ["yarn", "yarn-tuned"]}
    methods = ["none", "yarn", YARN]
    plan = planned(methods=methods, benchmarks=[passkey, some])
    asked = {(c.method, c.frozen, c.eval_length) for c in plan.cells}
    assert asked == {
        *((*row, 128) for row in (("none", True), ("yarn", True), ("yarn", False))),
        *(("yarn", frozen, length) for frozen in (True, False) for length in (256, 512)),
    }
    assert len(plan.cells) == len(asked)
    samples = {c.step.spec["benchmark"]["num_samples"] for c in plan.cells if c.step}
    assert samples == {60, 20}
    parts = {c.step.fingerprint for c in plan.cells if c.step and c.eval_length == 128}
    assert parts <= set(planned(methods=methods, benchmarks=[passkey]).steps)


def test_what_no_benchmark_asks_is_trained_only_for_another_entry(store):
    (passkey,) = (one for one in TOY["benchmarks"] if one["name"] == "passkey")

    def asked(of: str, *methods: Any) -> StudyPlan:
        benchmarks = [{**passkey, "methods": ["none", of]}]
        return planned(methods=["none", YARN, *methods], benchmarks=benchmarks)

    plan = asked("pi", "pi")
    assert finetunes(plan) == {}
    units = units_to_do(plan, inspect(plan, store, {}))
    assert sum(len(unit.steps) for unit in units) == len(plan.steps)
    further = {**YARN, "label": "yarn_2", "scale": 8.0, "start_from": "yarn-tuned"}
    assert set(finetunes(asked("yarn_2-tuned", further))) == {"yarn-tuned", "yarn_2-tuned"}
    other = {"name": "dynamic_yarn", "label": "other", "weights_of": "yarn-tuned"}
    assert set(finetunes(asked("other-tuned", other))) == {"yarn-tuned"}


def test_names_descriptions_and_the_order_of_axes_are_no_identity():
    renamed = planned(study="other", hypothesis="something else")
    assert list(renamed.steps) == list(planned().steps)
    backwards = planned(methods=TOY["methods"][::-1], benchmarks=TOY["benchmarks"][::-1])
    assert set(backwards.steps) == set(renamed.steps)


def test_bf16_cells_say_how_they_were_rotated_and_fp32_cells_do_not():
    plain, settings = planned(), TOY["evaluation"]
    assert set(planned(evaluation={**settings, "rotation": "fp32"}).steps) == set(plain.steps)
    bf16, written, stock = (
        planned(evaluation={**settings, "precision": "bf16", **rotation})
        for rotation in ({}, {"rotation": "fp32"}, {"rotation": "stock"})
    )
    assert set(bf16.steps) == set(written.steps)
    said = [step.spec["evaluation"] for step in bf16.steps.values() if step.kind == "cell"]
    # Those whose cosines were rounded are known as {"precision": "bf16"}.
    assert said
    assert all(entry == {"precision": "bf16", "rotation": "fp32"} for entry in said)
    assert not fingerprints(stock, "cell") & fingerprints(bf16, "cell")
    assert all(
        fingerprints(stock, kind) == fingerprints(plain, kind) for kind in ("base", "finetune")
    )


def test_runs_with_bf16_states_name_their_noise_and_others_do_not():
    def trained(**changes: Any) -> list[dict[str, Any]]:
        plan = planned(training={**TOY["training"], "precision": "bf16", **changes})
        return [s.spec["training"] for s in plan.steps.values() if s.kind == "finetune"]

    for allowed in ("bf16", "fp32_or_bf16"):
        plain = trained(state_precision=allowed)
        # Runs whose noise came from torch's generators have no key "rounding".
        assert {entry["rounding"] for entry in plain} == {"philox"}
        assert trained(state_precision=allowed, rounding=None) == plain
    full = trained()
    assert not any("rounding" in entry for entry in full)
    assert trained(rounding="philox") == full


def test_rounded_positions_are_part_of_a_run_and_exact_ones_leave_no_trace():
    def runs(*entries: dict[str, str]) -> set[str]:
        return fingerprints(planned(methods=[{**YARN, **entry} for entry in entries]), "finetune")

    exact, rounded = runs({"train_positions": "exact"}), runs({"train_positions": "bf16"})
    assert exact == runs({})
    assert not exact & rounded
    assert runs({}, {"label": "yarn_bf16", "train_positions": "bf16"}) == exact | rounded


def test_cells_beyond_a_methods_reach_have_their_reason_and_wait_for_no_data():
    methods = [{"name": "self_extend", "window": 64, "group": 4}]
    plan = planned(methods=methods)
    reasons = {cell.eval_length: cell.unavailable for cell in plan.cells}
    assert reasons[256] is None
    assert "exceeds the 320 tokens that self_extend supports" in (reasons[512] or "")
    assert all(cell.step is None for cell in plan.cells if cell.eval_length > 320)
    passkey = {"name": "passkey", "profile": "tiny", "lengths": [512], "num_samples": 2}
    plan = planned(methods=methods, benchmarks=[passkey])
    assert {cell.step for cell in plan.cells} == {None}
    assert not any(map(plan.waits_for_data, plan.cells))


def test_cells_whose_held_out_text_cannot_exist_are_unavailable():
    perplexity = {"name": "perplexity", "profile": "tiny", "domains": ["code", "poetry"]}
    plan = planned(
        benchmarks=[perplexity | {"lengths": [128, 512]}],
        evaluation={"held_out_tokens": 256, "held_out_document_tokens": 256},
    )
    reasons = {(cell.task, cell.eval_length): cell.unavailable for cell in plan.cells}
    assert reasons[("code", 128)] is None
    assert "needs 512 successive tokens of held-out text" in str(reasons[("code", 512)])
    assert "no domain 'poetry', only code, docs, prose" in str(reasons[("poetry", 128)])
    assert not [step for step in plan.steps.values() if step.axes.get("task") == "poetry"]


def test_a_corpus_out_of_reach_makes_every_cell_unavailable():
    plan = planned(corpus={"name": "jsonl_folder", "domain_names": ["code", "docs", "prose"]})
    assert plan.steps == {}
    assert {cell.unavailable is None for cell in plan.cells} == {False}
    assert {(cell.step, cell.checkpoint) for cell in plan.cells} == {(None, None)}
    here = planned()
    kinds, expected = (Counter(s.kind for s in p.values()) for p in (here.steps, plan.expected))
    assert kinds == expected
    assert here.expected == {}
    assert all(cell.expected and cell.expected.kind == "cell" for cell in plan.cells)


def test_a_failed_parent_blocks_its_cells_and_says_so(store):
    plan = planned()
    finish(store, [s for s in plan.steps.values() if s.kind in ("rows", "held_out", "base")])
    broken = next(s for s in plan.steps.values() if s.name == "toy_llama-yarn-tuned-s0")
    store.failures.add(broken, NonFiniteError("step 7", "loss nan", "a finite loss", "look"), {})
    states = inspect(plan, store, {})
    blocked = [s for s in plan.steps.values() if broken.fingerprint in s.parents.values()]
    assert len(blocked) == 17
    for step in blocked:
        assert states[step.fingerprint].state == "failed"
        assert "step 7: got loss nan" in states[step.fingerprint].reason
    again = inspect(plan, store, {}, retry_failed=True)
    assert again[broken.fingerprint].state == "missing"


def test_only_what_other_folders_or_another_machine_may_change_is_tried_again(store):
    plan = planned()
    absent, failed, *_ = plan.steps.values()
    folders = {"model_folders": {"m": "/a"}}
    store.failures.add(absent, UnavailableError("weights", "none", "some here", "fetch"), folders)
    store.failures.add(failed, SpecError("device", "cuda, but no GPU", "a GPU", "use cpu"), {})
    same, other = (inspect(plan, store, {"m": folder}) for folder in ("/a", "/b"))
    assert same[absent.fingerprint].state == "unavailable"
    assert other[absent.fingerprint].state == "missing"
    assert other[failed.fingerprint].state == "missing"


def test_data_of_a_benchmark_is_part_of_its_cells_alone(tmp_path):
    needle = {"name": "needle", "profile": "clean", "lengths": [512]}
    text = yaml.safe_dump({**TOY, "benchmarks": [needle, TOY["benchmarks"][-1]]})
    study = parse_study(text, "toy.yaml")
    absent = compile_study(study, {})
    assert {c.unavailable is None for c in absent.cells if c.benchmark == "needle"} == {False}
    assert {c.unavailable is None for c in absent.cells if c.benchmark == "passkey"} == {True}

    def ids(text: str, benchmark: str) -> set[str]:
        (tmp_path / "one.txt").write_text(text)
        plan = compile_study(study, {"essays": tmp_path})
        return {c.step.fingerprint for c in plan.cells if c.step and c.benchmark == benchmark}

    assert not ids("one essay", "needle") & ids("another", "needle")
    assert ids("one essay", "passkey") == ids("another", "passkey")


def test_units_hold_one_model_at_one_length_or_its_text_and_parents_start_first(store):
    plan = planned()
    units = units_to_do(plan, inspect(plan, store, {}))
    assert sum(len(unit.steps) for unit in units) == len(plan.steps)
    for unit in units:
        assert len({(s.axes.get("method"), s.axes.get("seed")) for s in unit.steps}) == 1
        places = [(s.axes.get("task"), -s.axes.get("eval_length", 0)) for s in unit.steps]
        asked = {s.axes.get("benchmark") for s in unit.steps}
        if asked == {"perplexity", "nll_by_position"}:
            assert len({text for text, _ in places}) == 2
            assert places == sorted(places)
        else:
            assert not asked & {"perplexity", "nll_by_position"}
            assert len({length for _, length in places}) == 1
    assert len({unit.name for unit in units}) == len(units)
    base = next(unit for unit in units if unit.kind == "base")
    blocked = abandoned([u for u in units if u is not base], {base.steps[0].fingerprint})
    assert [u for u in units if u.kind in ("finetune", "cell")] == [
        unit
        for unit in blocked
        if unit.kind not in ("rows", "held_out")  # only these read them
    ]


def test_weights_of_which_no_cell_can_be_evaluated_are_not_trained(store):
    needle = {"name": "needle", "profile": "clean", "lengths": [512]}  # its essays are not here
    benchmarks = [
        {**needle, "methods": ["pi-tuned"]},
        {**TOY["benchmarks"][0], "methods": ["yarn"]},
    ]
    plan = planned(methods=[{"name": "pi", "tuned": True}, "yarn"], benchmarks=benchmarks)
    assert {cell.method for cell in plan.cells if cell.unavailable} == {"pi"}
    units = units_to_do(plan, inspect(plan, store, {}))
    kinds = Counter(step.kind for unit in units for step in unit.steps)
    evaluated = sum(cell.step is not None for cell in plan.cells)
    assert kinds == {"rows": 1, "held_out": 1, "base": 1, "cell": evaluated}


def test_a_selection_keeps_ancestors_and_refuses_what_is_not_there():
    plan = planned(seeds=[0, 1])
    chosen = select_cells(plan, "method=yarn,frozen=false,benchmark=passkey,seed=1")
    assert len(chosen.cells) == 4
    kinds = Counter(step.kind for step in chosen.steps.values())
    assert set(kinds) == {"rows", "held_out", "base", "finetune", "cell"}
    assert kinds["finetune"] == 1
    for select, proposed in (
        ("method=yran", "yarn"), ("metod=yarn", "method"), ("variant=yarn_tuned", "yarn-tuned"),
    ):  # fmt: skip
        with pytest.raises(SpecError, match=f"write '{proposed}'"):
            select_cells(plan, select)
    tuned = select_cells(plan, "method=yarn,frozen=false")
    assert select_cells(plan, "variant=yarn-tuned").cells == tuned.cells
    frozen = select_cells(plan, "variant=yarn")
    assert {cell.frozen for cell in frozen.cells} == {True}


def test_the_dearest_of_a_seed_comes_first_and_equals_in_an_order_of_the_hosts_own(store):
    plan = planned(seeds=[0, 1])
    units = units_to_do(plan, inspect(plan, store, {}))
    dear = {unit.name for unit in units[-3:]}  # of the last seed
    seconds = {
        step.fingerprint: 100.0 if unit.name in dear else 1.0
        for unit in units
        for step in unit.steps
    }

    def ordered(host: str) -> list[str]:
        return [unit.name for unit in dearest_first(units, plan, seconds, host)]

    one, two = ordered("one"), ordered("two")
    assert one == ordered("one") != two
    bases = {unit.name for unit in units if unit.kind == "base"}
    for names in (one, two):
        assert sorted(names) == sorted(unit.name for unit in units)
        cells = [name for name in names if name.startswith("evaluate")]
        first, last = ([name for name in cells if f"-s{seed}" in name] for seed in (0, 1))
        assert cells == first + last
        assert set(last[:3]) == dear
        assert bases <= set(names[: names.index(cells[0])])


def of_kind(kind: str, **changes: Any) -> Step:
    step = next(step for step in planned().steps.values() if step.kind == kind)
    return Step(**{**step.to_json(), "spec": {**step.spec, **changes}})


def test_kinds_start_in_the_order_in_which_they_wait_for_each_other():
    steps = planned().steps
    for step in steps.values():
        for parent in step.parents.values():
            assert KINDS[steps[parent].kind].order < KINDS[step.kind].order
    assert len({kind.order for kind in KINDS.values()}) == len(KINDS)


@pytest.mark.parametrize(
    ("kind", "changes", "message"),
    [
        ("rows", {"rows_length": 8}, "rows_length: got an unknown key"),
        ("cell", {"method": {"name": "yarn", "version": 0}}, "version 0"),
        ("cell", {"intervals": {"wilson": {"version": 0}}}, "intervals"),
    ],
)
def test_a_spec_that_another_version_wrote_is_refused_with_its_place(kind, changes, message):
    with pytest.raises(SpecError, match=message):
        spec_of(of_kind(kind, **changes))


def test_the_definition_of_intervals_is_part_of_a_cells_identity(monkeypatch):
    before = planned()
    for step in before.steps.values():
        assert (step.spec.get("intervals") == INTERVALS) == (step.kind == "cell")
    monkeypatch.setitem(INTERVALS, "wilson", {**INTERVALS["wilson"], "version": 2})
    assert not fingerprints(planned(), "cell") & set(before.steps)
