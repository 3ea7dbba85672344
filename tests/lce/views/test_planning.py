"""What `lce plan` and `lce status` say: prices without data are those that the data then give."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from flows.plans import pricing
from flows.plans.pricing import device_here
from flows.settings import make_execution, study_path
from lce.views.plan_view import show
from lce.views.planning import Inspection, as_json, inspect_study
from lce_core.errors import SpecError
from lce_core.execution import Execution
from lce_core.study.pricing.speed import DEVICE_TYPES
from lce_core.study.study_file import load_study
from tests.support.free_steps import write_file

LLAMA: dict[str, Any] = {
    "study": "mine",
    "hypothesis": "none",
    "target_context": 8192,
    "train_tokens": 1_000_000,
    "corpus": {"name": "jsonl_folder", "folder": "text"},
    "base_models": ["llama2_7b"],
    "methods": ["none", {"name": "yarn", "tuned": True}],
    "training": {"learning_rate": 1.0e-5, "tokens_per_step": 65536},
    "evaluation": {"precision": "bf16"},
    "benchmarks": [
        {"name": "passkey", "lengths": [4096, 8192]},
        {"name": "needle", "lengths": [4096]},
        {
            "name": "perplexity",
            "profile": "fast",
            "domains": [],
            "data_sets": ["pg19"],
            "lengths": [4096],
        },
    ],
    "seeds": [0],
}


def found(tmp_path: Path, study: dict[str, Any] | str, **folders: Path) -> Inspection:
    execution: dict[str, Any] = {"home": tmp_path / "home", "device": "cpu", "slots": 2}
    if isinstance(study, dict):
        file = tmp_path / "study.yaml"
        file.write_text(yaml.safe_dump(study), encoding="utf-8")
        study = str(file)
    return inspect_study(study, make_execution({**execution, "data_folders": folders}))


@pytest.fixture
def text(tmp_path) -> Path:
    folder = tmp_path / "text"
    folder.mkdir()
    (folder / "a.jsonl").write_text('{"text": "one"}\n', encoding="utf-8")
    return folder


@pytest.fixture
def essays(tmp_path) -> Path:
    folder = tmp_path / "essays"
    folder.mkdir()
    (folder / "a.txt").write_text("What I have learnt. " * 50, encoding="utf-8")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("study", ["toy", "smollm2-quick", "lceg-llama2-7b"])
def test_a_shipped_study_has_a_price_before_its_data_are_here_in_80_columns(
    tmp_path, study, monkeypatch, capsys
):
    monkeypatch.setenv("COLUMNS", "80")
    inspection = found(tmp_path, study)
    for device in ("a100", "cpu"):
        show(inspection, every_cell=False, device=device)
        lines = capsys.readouterr().out.splitlines()
        table = lines[: 1 + len({(cell.method, cell.frozen) for cell in inspection.plan.cells})]
        assert table[0].split()[-2:] == ["tokens", "time"]
        assert not any("…" in line or len(line) > 80 for line in table)
    told = as_json(inspection, "a100")
    for cell in told["cells"]:
        to_give = "--data-folder" in cell["reason"] or "--model-folder" in cell["reason"]
        assert cell["state"] == "missing" or to_give or cell["flops"] == 0
        # What is read off another cell's windows is priced, and costs nothing.
        unavailable = cell["state"] == "unavailable"
        assert cell["estimated"] <= unavailable
        assert cell["estimated"] or not (unavailable and cell["flops"])
    assert told["to_do"]["hours"] + told["expected"]["hours"] > 0
    kinds = {step["kind"] for step in told["steps"] if step["flops"]}
    tuned = any(entry.tuned for entry in load_study(study_path(study)).methods)
    assert ("finetune" in kinds) is tuned
    assert not (tmp_path / "home").exists()


def test_prices_without_the_corpus_are_those_with_it(tmp_path, text, essays):
    bare, whole = found(tmp_path, LLAMA), found(tmp_path, LLAMA, text=text, essays=essays)
    before, after = (as_json(one, "h100") for one in (bare, whole))
    assert before["to_do"]["tokens"] == 0
    passkeys = [
        [cell for cell in one["cells"] if cell["benchmark"] == "passkey"] for one in (before, after)
    ]
    for guessed, known in zip(*passkeys, strict=True):
        assert (guessed["estimated"], known["estimated"]) == (True, False)
        assert (guessed["state"], known["state"]) == ("unavailable", "missing")
        for key in ("tokens", "flops", "hours", "gpu_hours", "answer_tokens"):
            assert guessed[key] == known[key] > 0
    tunes = [
        [step for step in one["steps"] if step["kind"] == "finetune"] for one in (before, after)
    ]
    assert tunes[0][0]["flops"] == tunes[1][0]["flops"] > 0
    assert (tunes[0][0]["fingerprint"], tunes[0][0]["state"]) == (None, "unavailable")
    needles = [
        next(cell for cell in one["cells"] if cell["benchmark"] == "needle")
        for one in (before, after)
    ]
    assert needles[0]["tokens"] == pytest.approx(needles[1]["tokens"], rel=0.15)


def test_only_the_cells_whose_data_are_absent_are_estimated(tmp_path, text):
    told = as_json(found(tmp_path, LLAMA, text=text), "h100")
    states = {cell["benchmark"]: (cell["state"], cell["estimated"]) for cell in told["cells"]}
    assert states == {
        "passkey": ("missing", False),
        "needle": ("unavailable", True),
        "perplexity": ("unavailable", True),
    }
    pg19 = next(cell for cell in told["cells"] if cell["benchmark"] == "perplexity")
    assert "pg19=FOLDER" in pg19["reason"]
    assert pg19["tokens"] == pytest.approx(100 * 105_000, rel=0.01)  # the test set's 100 books
    assert {step["state"] for step in told["steps"]} == {"missing"}
    assert told["to_do"]["estimated"] is False
    assert told["expected"]["estimated"] is True


def test_a_cell_that_cannot_be_for_another_reason_has_no_price(tmp_path):
    methods = [{"name": "self_extend", "window": 1024, "group": 2}]
    told = as_json(found(tmp_path, {**LLAMA, "methods": methods}))
    far = [cell for cell in told["cells"] if cell["eval_length"] == 8192]
    assert [(cell["flops"], cell["estimated"]) for cell in far] == [(0, False)]
    assert "exceeds the" in far[0]["reason"]


def test_hours_are_those_of_the_device_that_is_asked_for(tmp_path):
    inspection = found(tmp_path, LLAMA)
    told = {name: as_json(inspection, name) for name in (*DEVICE_TYPES, "cpu")}
    hours = [told[name]["expected"]["hours"] for name in ("h200", "h100", "a100", "cpu")]
    assert hours == sorted(hours)
    for name in DEVICE_TYPES:
        assert told[name]["expected"]["gpu_hours"] == told[name]["expected"]["hours"]
    assert told["cpu"]["expected"]["gpu_hours"] < hours[-1]
    assert as_json(inspection)["device"] == device_here(inspection.execution) == "cpu"
    with pytest.raises(SpecError, match="one of a100, h100, h200, cpu"):
        as_json(inspection, "a10")


def test_what_differs_is_told_in_groups_of_80_columns(tmp_path, text, capsys):
    before = found(tmp_path, LLAMA, text=text)
    before.store.studies.save_plan("mine", before.plan.to_json(), "study.yaml")
    for step in before.plan.steps.values():
        before.store.ensure(step, write_file, {"threads": 1, "device": "cpu"})
    passkey = {"name": "passkey", "lengths": [4096, 16384]}
    changed = {**LLAMA, "benchmarks": [passkey, *LLAMA["benchmarks"][1:]]}
    changed["training"] = {**LLAMA["training"], "learning_rate": 2.0e-5}
    after = found(tmp_path, changed, text=text)
    show(after, every_cell=False, device="h100")
    lines = capsys.readouterr().out.splitlines()
    rate = "training.learning_rate: 1e-05 -> 2e-05"
    assert f"~ 1 cell yarn on passkey: checkpoint.{rate}" in lines
    assert f"~ 1 finetune yarn: {rate}" in lines
    assert "- 2 cells none, yarn on passkey: eval_length 8192 is no longer in the study" in lines
    told = as_json(after)
    assert told["changes"] == {"done": 1, "new": 2, "stale": 1, "unavailable": 4, "orphaned": 2}
    (stale,) = [cell for cell in told["cells"] if cell["change"] == "stale"]
    assert stale["differs"] == [f"checkpoint.{rate}"]
    ids = {cell.step.id for cell in before.plan.cells if cell.step}
    assert {stale["was"], *(one["id"] for one in told["orphaned"])} <= ids
    assert {one["axes"]["eval_length"] for one in told["orphaned"]} == {8192}


def test_what_a_study_needs_follows_from_its_steps_and_the_execution_file(
    tmp_path, text, capsys, monkeypatch
):
    monkeypatch.setenv("COLUMNS", "80")
    node = tmp_path / "node.yaml"
    node.write_text("processes: 8\ncheckpoint_seconds: 1800\n")
    how = make_execution({"home": tmp_path / "home", "data_folders": {"text": text}}, node)
    study = tmp_path / "study.yaml"
    study.write_text(yaml.safe_dump(LLAMA), encoding="utf-8")
    inspection = inspect_study(str(study), how)
    told = as_json(inspection, "h100")
    needs, weights = told["needs"], 6_738_415_616
    assert needs["slots"] == 8
    training = next(step["hours"] for step in told["steps"] if step["kind"] == "finetune")
    cells = sum(cell["hours"] for cell in told["cells"])
    # One run trains on all GPUs; then its cells share them, each longer than a mean share.
    assert 3600 * (training + cells) / 8 <= needs["seconds"] <= 3600 * (training / 8 + cells)
    assert needs["checkpoint_bytes"] == pytest.approx(4 * weights, rel=0.01)
    assert needs["resume_bytes"] == pytest.approx(2 * 12 * weights, rel=0.01)
    assert 0 < needs["disk_bytes"] - needs["checkpoint_bytes"] - needs["resume_bytes"] < 1e9
    # Processes share the GPUs of one run; on CPUs, each of two runs has both processes.
    study.write_text(yaml.safe_dump({**LLAMA, "seeds": [0, 1]}), encoding="utf-8")
    two = inspect_study(str(study), how.model_copy(update={"processes": 2, "slots": 2}))
    resume_bytes = [as_json(two, device)["needs"]["resume_bytes"] for device in ("h100", "cpu")]
    assert resume_bytes == [needs["resume_bytes"], 2 * needs["resume_bytes"]]
    assert needs["downloads"] == {"llama2_7b": pytest.approx(2 * weights, rel=0.01)}
    assert needs["lost_training_seconds"] == pytest.approx(3600 * training / 8)
    longest = max(cell["hours"] for cell in told["cells"])
    assert longest > 1 / 60
    assert 60 <= needs["lost_cell_seconds"] < 3600 * longest / 2  # a prompt or range of bf16
    assert needs["text_passes"] > 1e5  # a file of 16 bytes, for a million tokens
    show(inspection, every_cell=False, device="h100")
    lines = capsys.readouterr().out.splitlines()
    shown = lines[next(n for n, line in enumerate(lines) if line.startswith("wall clock: ")) :]
    assert shown[0].endswith(" on 8 H100s")
    assert [line.split(":")[0] for line in shown if not line.startswith(" ")] == [
        *("wall clock", "disk", "downloads", "a kill loses", "warning")
    ]
    assert max(map(len, shown)) <= 80
    assert not (tmp_path / "home").exists()


def test_weights_that_must_be_fetched_are_named_and_priced(tmp_path, text):
    study = {**LLAMA, "base_models": ["smollm2_135m_q4"], "methods": ["none"]}
    told = as_json(found(tmp_path, study, text=text))
    passkey = told["cells"][0]
    assert passkey["state"] == "missing"
    assert "run `lce fetch smollm2_135m_q4`" in passkey["reason"]
    assert passkey["flops"] > 0


def test_an_unknown_gpu_is_priced_as_a_known_one(monkeypatch):
    execution = Execution(home=Path("home"))
    monkeypatch.setattr("tasks.machines.visible_gpus", lambda: {"0": "GPU-1"})
    monkeypatch.setattr("tasks.machines.gpu_name", lambda: "NVIDIA H200")
    assert device_here(execution) == "h200"
    monkeypatch.setattr("tasks.machines.gpu_name", lambda: "")
    assert device_here(execution) == pricing.GPU_HOURS_OF
    assert device_here(execution.model_copy(update={"device": "cpu"})) == "cpu"
