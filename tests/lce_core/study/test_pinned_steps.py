"""Ids of steps stay: the shipped smoke study has the fingerprints that lie in a file beside.

A fingerprint that moves makes every artifact of its kind in every store be computed again. A change
that is meant to do that raises a VERSION and writes the file anew:

    python -m tests.lce_core.study.test_pinned_steps

The text is written here, because that of `local_text` is the Python installation's own.
"""

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from lce_core.store.steps import Step
from lce_core.study.plan import StudyPlan, compile_study
from lce_core.study.step_kinds import KINDS, spec_of
from lce_core.study.study_file import parse_study
from tests.support.repository import ROOT

PINNED = Path(__file__).with_name("pinned_steps.json")
"""By plan, then by kind and name. First written at commit 9050679."""
TEXT = {"folder": "text", "domain_names": ["code"]}


def compiled(folder: Path) -> dict[str, StudyPlan]:
    """The smoke study on the text of this test: the hub's weights, a folder's, streamed text."""
    text, weights = folder / "text", folder / "weights"
    text.mkdir()
    weights.mkdir()
    (text / "a.jsonl").write_bytes(b'{"text": "def one():\\n    return 1\\n"}\n')
    (weights / "config.json").write_bytes(b"{}")
    study = yaml.safe_load((ROOT / "flows" / "studies" / "smoke.yaml").read_text(encoding="utf-8"))
    study["corpus"] = {"name": "jsonl_folder", **TEXT}
    spec = parse_study(yaml.safe_dump(study), "smoke.yaml")
    tuned = yaml.safe_dump({**study, "tune": {"learning_rate": [1.0e-4, 1.0e-3]}})
    searched = yaml.safe_dump({**study, "methods": [{"name": "longrope", "tuned": True}]})
    streamed = {**study, "corpus": {"name": "streamed", "domain_names": ["code"]}}
    folders = {"text": text}
    return {
        "smoke": compile_study(spec, folders),
        "smoke, weights in a folder": compile_study(spec, folders, {"toy_llama": weights}),
        "smoke, with tune": compile_study(parse_study(tuned, "t.yaml"), folders),
        "smoke, with a search": compile_study(parse_study(searched, "l.yaml"), folders),
        "smoke, streamed": compile_study(parse_study(yaml.safe_dump(streamed), "s.yaml"), folders),
    }


def fingerprints(plans: dict[str, StudyPlan]) -> dict[str, dict[str, str]]:
    return {
        name: {f"{step.kind}/{step.name}": step.fingerprint for step in plan.steps.values()}
        for name, plan in plans.items()
    }


@pytest.fixture(scope="module")
def plans(tmp_path_factory) -> dict[str, StudyPlan]:
    return compiled(tmp_path_factory.mktemp("pinned"))


def test_the_smoke_study_has_the_fingerprints_it_always_had(plans):
    pinned: dict[str, Any] = json.loads(PINNED.read_text(encoding="utf-8"))
    assert fingerprints(plans) == pinned


def test_a_spec_comes_back_from_the_json_that_travels_to_workers(plans):
    steps = [step for plan in plans.values() for step in plan.steps.values()]
    assert {step.kind for step in steps} == set(KINDS)
    for step in steps:
        arrived = Step(**json.loads(json.dumps(step.to_json())))
        assert arrived == step
        assert spec_of(arrived).identity() == step.spec


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        found = fingerprints(compiled(Path(folder)))
    PINNED.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n", encoding="utf-8")
