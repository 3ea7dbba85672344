"""`lce schema` accepts every shipped study and refuses what no study may contain."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator
from typer.testing import CliRunner

from flows.settings import shipped_studies, study_path
from lce.cli import app
from tests.support.plugin_copies import plugins_removed_after
from tests.support.repository import ROOT


@pytest.fixture(scope="module")
def validator() -> Draft202012Validator:
    schema = json.loads(CliRunner().invoke(app, ["schema"]).output)
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def errors(validator: Draft202012Validator, study: Any) -> list[str]:
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(study)]


@pytest.mark.parametrize("name", shipped_studies())
def test_a_shipped_study_is_valid(validator: Draft202012Validator, name: str) -> None:
    study = yaml.safe_load(study_path(name).read_text(encoding="utf-8"))
    assert errors(validator, study) == []


def test_the_first_study_of_the_docs_is_valid(validator: Draft202012Validator) -> None:
    text = (ROOT / "docs" / "studies.md").read_text(encoding="utf-8")
    (first, *_) = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    assert errors(validator, yaml.safe_load(first)) == []


def test_a_study_of_own_plugins_is_valid_with_their_folder(validator: Draft202012Validator) -> None:
    folder = ROOT / "examples" / "plugins"
    study = yaml.safe_load((folder / "study.yaml").read_text(encoding="utf-8"))
    assert errors(validator, study) != []
    with plugins_removed_after():
        printed = CliRunner().invoke(app, ["schema", "--plugins", str(folder)]).output
    assert errors(Draft202012Validator(json.loads(printed)), study) == []


@pytest.mark.parametrize(
    ("change", "place"),
    [
        (lambda study: study.update(sedes=[0]), "$"),
        (lambda study: study.pop("seeds"), "$"),
        (lambda study: study.update(target_context=-1), "$.target_context"),
        (lambda study: study.update(corpus="local_texts"), "$.corpus"),
        (lambda study: study["base_models"].append("toy_lama"), "$.base_models[1]"),
        (lambda study: study["methods"].append("yarm"), "$.methods[3]"),
        (lambda study: study["methods"].append({"name": "yarn", "scal": 2.0}), "$.methods[3]"),
        (lambda study: study["methods"].append({"name": "yarn", "at_best": True}), "$.methods[3]"),
        (lambda study: study["benchmarks"].append({"name": "passkey"}), "$.benchmarks[2]"),
        (lambda study: study["benchmarks"].append("passkey"), "$.benchmarks[2]"),
        (lambda study: study["training"].update(recipe="yarm"), "$.training"),
    ],
)
def test_a_wrong_key_or_name_is_refused_where_it_stands(
    validator: Draft202012Validator, change: Callable[[dict[str, Any]], object], place: str
) -> None:
    study = yaml.safe_load(study_path("smoke").read_text(encoding="utf-8"))
    assert errors(validator, study) == []
    change(study)
    assert any(error.startswith(place) for error in errors(validator, study))


def test_the_schema_describes_a_methods_parameters(validator: Draft202012Validator) -> None:
    entries = validator.schema["properties"]["methods"]["items"]["oneOf"]
    (yarn,) = (one for one in entries if one.get("properties", {}).get("name") == {"const": "yarn"})
    assert {"scale", "label", "tuned"} <= set(yarn["properties"])
    assert yarn["properties"]["scale"]["description"]
