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


def test_shipped_studies_and_the_first_of_the_docs_are_valid(validator):
    page = (ROOT / "docs" / "studies.md").read_text(encoding="utf-8")
    (first, *_) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    shipped = (study_path(name).read_text(encoding="utf-8") for name in shipped_studies())
    for text in (first, *shipped):
        assert errors(validator, yaml.safe_load(text)) == [], text


def test_a_study_of_own_plugins_is_valid_with_their_folder(validator):
    folder = ROOT / "docs" / "examples" / "plugins"
    study = yaml.safe_load((folder / "study.yaml").read_text(encoding="utf-8"))
    assert errors(validator, study) != []
    with plugins_removed_after():
        printed = CliRunner().invoke(app, ["schema", "--plugins", str(folder)]).output
    assert errors(Draft202012Validator(json.loads(printed)), study) == []


def test_a_wrong_key_or_name_is_refused_where_it_stands(validator):
    text = study_path("smoke").read_text(encoding="utf-8")
    changes: list[tuple[str, Callable[[dict[str, Any]], object]]] = [
        ("$", lambda study: study.update(sedes=[0])),
        ("$", lambda study: study.pop("seeds")),
        ("$.target_context", lambda study: study.update(target_context=-1)),
        ("$.corpus", lambda study: study.update(corpus="local_texts")),
        ("$.base_models[1]", lambda study: study["base_models"].append("toy_lama")),
        ("$.methods[3]", lambda study: study["methods"].append("yarm")),
        ("$.methods[3]", lambda study: study["methods"].append({"name": "yarn", "scal": 2.0})),
        ("$.benchmarks[2]", lambda study: study["benchmarks"].append({"name": "passkey"})),
        ("$.training", lambda study: study["training"].update(recipe="yarm")),
    ]
    for place, change in changes:
        study = yaml.safe_load(text)
        change(study)
        found = errors(validator, study)
        assert any(error.startswith(f"{place}:") for error in found), found
