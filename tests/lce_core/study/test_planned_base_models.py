"""Plans with models that are read from their config.json: names, geometry, identity."""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from flows.selection import select_cells
from lce_core.errors import SpecError
from lce_core.models.hub_model import HubModel
from lce_core.models.toy_llama import ToyLlama, byte_tokenizer
from lce_core.study.plan import StudyPlan, compile_study
from lce_core.study.step_kinds import spec_of, step_cost
from lce_core.study.study_file import parse_study
from tests.lce_core.study.smoke_plans import written
from tests.support.architectures import TRAINED, save, sliding
from tests.support.repository import ROOT

STUDY: dict[str, Any] = {
    "study": "two-kinds",
    "hypothesis": "None.",
    "target_context": 64,
    "train_tokens": 256,
    "corpus": {"name": "jsonl_folder", "domain_names": ["code"]},
    "base_models": [
        {"name": "hub_model", "label": "first"},
        {"name": "hub_model", "label": "second"},
    ],
    "methods": ["none", "self_extend", {"name": "yarn", "tuned": True}],
    "training": {"learning_rate": 1e-3, "tokens_per_step": 128},
    "benchmarks": [
        {"name": "perplexity", "profile": "tiny", "domains": ["code"], "lengths": [16, 64]}
    ],
    "seeds": [0],
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict[str, Path]:
    made = {"first": "qwen3", "second": "stablelm"}
    return {name: save(kind, tmp_path_factory.mktemp(name)) for name, kind in made.items()}


@pytest.fixture
def text(tmp_path_factory) -> dict[str, Path]:
    return {"text": written(tmp_path_factory.mktemp("text"))}


def planned(text: dict[str, Path], folders: dict[str, Path], **changes: Any) -> StudyPlan:
    study = parse_study(yaml.safe_dump({**STUDY, **changes}), "mine.yaml")
    return compile_study(study, text, folders, "mine.yaml")


def test_a_folder_of_another_shape_is_no_published_model(text, tmp_path):
    folder = save("llama", tmp_path)
    with pytest.raises(SpecError, match=r"hidden_size: got 32; expected 4096, .* llama2_7b"):
        planned(text, {"llama2_7b": folder}, base_models=["llama2_7b"])


def test_two_kinds_of_model_in_one_study_have_their_own_names_and_geometry(text, folders):
    plan = planned(text, folders)
    assert {cell.base_model for cell in plan.cells} == {"first", "second"}
    assert all(cell.step or "self_extend supports" in str(cell.unavailable) for cell in plan.cells)
    assert plan.to_json()["base_contexts"] == {"first": TRAINED, "second": TRAINED}
    names = {step.name for step in plan.steps.values()}
    assert {"first-yarn-tuned-s0", "second-yarn-tuned-s0", "jsonl_folder-first"} <= names
    assert "second-none-s0-perplexity-code-64" in names
    rotary = {base.known_as: base.geometry.rotary_dim for base in plan.study.base_models}
    assert rotary == {"first": 12, "second": 4}
    chosen = select_cells(plan, "base_model=second")
    assert {cell.base_model for cell in chosen.cells} == {"second"}
    # Workers and later readers have the spec alone: neither folder nor network.
    for step in plan.steps.values():
        if step.kind == "cell":
            model: Any = spec_of(step).base_model  # type: ignore[attr-defined]
            assert isinstance(model, HubModel)
            assert model.geometry.trained_context == TRAINED
            assert step_cost(step).flops > 0
        assert str(folders["first"].parent) not in str(step.to_json())


def test_labels_and_places_of_folders_are_no_identity_and_their_content_is(text, folders, tmp_path):
    before = set(planned(text, folders).steps)
    moved = {name: shutil.copytree(place, tmp_path / name) for name, place in folders.items()}
    assert set(planned(text, moved).steps) == before
    entries = [{"name": "hub_model", "label": name} for name in ("other", "second")]
    named = {"other": moved["first"], "second": moved["second"]}
    assert set(planned(text, named, base_models=entries).steps) == before
    weights = moved["first"] / "model.safetensors"
    content = weights.read_bytes()
    weights.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    changed = planned(text, moved).steps.values()
    kept = {step.axes["base_model"] for step in changed if step.fingerprint in before}
    assert kept == {"second"}
    assert {step.axes["base_model"] for step in changed} == {"first", "second"}


def test_a_model_out_of_reach_makes_its_own_cells_unavailable(text, folders):
    whole, plan = planned(text, folders), planned(text, {"second": folders["second"]})
    first = [cell for cell in plan.cells if cell.base_model == "first"]
    assert len(first) == len(whole.cells) // 2
    assert {cell.step for cell in first} == {None}
    assert {cell.train_length for cell in first} == {None, 64}
    assert all("`--model-folder first=FOLDER`" in str(cell.unavailable) for cell in first)
    assert plan.to_json()["base_contexts"] == {"first": None, "second": TRAINED}
    of_second = {s.fingerprint for s in whole.steps.values() if s.axes["base_model"] == "second"}
    assert set(plan.steps) == of_second


def test_the_cells_of_a_repository_name_it_and_need_no_weights_to_be_planned(
    text, folders, monkeypatch, tmp_path
):
    shutil.copy(folders["first"] / "config.json", tmp_path)
    monkeypatch.setattr("lce_core.models._stock.fetch", lambda *_: tmp_path)  # the network
    entry = {"name": "hub_model", "repo": "Org/Tiny-1.5B", "revision": "a" * 40}
    plan, other, labelled = (
        planned(text, {}, base_models=[{**entry, **changes}])
        for changes in ({}, {"revision": "b" * 40}, {"label": "x"})
    )
    assert {cell.base_model for cell in plan.cells} == {"tiny_1_5b"}
    identity = next(iter(plan.cells)).step.spec["base_model"]  # type: ignore[union-attr]
    assert (identity["repo"], identity["revision"]) == ("Org/Tiny-1.5B", "a" * 40)
    assert not set(plan.steps) & set(other.steps)
    assert set(labelled.steps) == set(plan.steps)


def test_methods_that_cannot_leave_other_layers_alone_or_change_none_are_refused_in_the_plan(
    text, folders, tmp_path
):
    sliding("gemma3_text").save_pretrained(tmp_path)
    byte_tokenizer(ToyLlama.keys).save_pretrained(tmp_path)
    entry = {"base_models": [{"name": "hub_model", "label": "first"}]}
    plan = planned(text, {"first": tmp_path}, **entry)
    note = "methods extend 2 of 4 layers; the others have a 5-token window"
    assert plan.to_json()["base_notes"] == {"first": note}
    assert "base_notes" not in planned(text, folders).to_json()
    with pytest.raises(SpecError, match="clex: got a method whose frequencies are trained, on a"):
        planned(text, {"first": tmp_path}, methods=[{"name": "clex", "tuned": True}], **entry)
    unrotated = save("smollm3", tmp_path / "smollm3")
    hybrid = {"name": "nope_hybrid", "every": 2, "tuned": True}
    for method in ({"name": "pi", "layers": [1]}, hybrid):
        with pytest.raises(SpecError, match="no layer that differs among the model's 2"):
            planned(text, {"first": unrotated}, methods=[method], **entry)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["same", "same"], "base_models: got same more than once"),
        (["toy_llama"], "got label toy_llama for base model hub_model; expected a label"),
    ],
)
def test_names_that_would_be_two_models_are_refused(labels, message):
    entries = [{"name": "hub_model", "label": label} for label in labels]
    with pytest.raises(SpecError, match=message):
        parse_study(yaml.safe_dump({**STUDY, "base_models": entries}), "mine.yaml")


def test_the_documented_entries_are_read_as_models():
    text = (ROOT / "docs" / "studies.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```yml\n(base_models:.*?)```", text, flags=re.DOTALL)
    study = parse_study(yaml.safe_dump({**STUDY, **yaml.safe_load(block)}), "docs")
    assert [model.known_as for model in study.base_models] == ["smol", "mine"]
