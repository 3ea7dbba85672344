"""What stands around the shipped studies: the comment each begins with, prefect.yaml and the docs.

All are read as they lie in the repository.
"""

from __future__ import annotations

import re

import pytest
import yaml

from flows.servers.deployments import prefect_yaml
from flows.settings import shipped_studies, study_path
from lce_core.study.study_file import load_study
from tests.support.repository import ROOT


def comment(name: str) -> str:
    """The lines before the first key, as one."""
    lines = study_path(name).read_text(encoding="utf-8").splitlines()
    end = next(index for index, line in enumerate(lines) if not line.startswith("#"))
    return " ".join(line.removeprefix("#").removesuffix("\\").strip() for line in lines[:end])


@pytest.mark.parametrize("name", shipped_studies())
def test_a_study_begins_with_the_data_it_reads(name: str) -> None:
    study = load_study(study_path(name))
    read = {
        data_set.name
        for entry in study.benchmarks
        for task in entry.tasks
        for data_set in entry.benchmark.reads(task)
    }
    folder = getattr(study.corpus, "folder", None)
    assert set(re.findall(r"--data-folder (\w+)=", comment(name))) == read | {folder} - {None}


@pytest.mark.parametrize("name", shipped_studies())
def test_a_command_in_its_comment_runs_this_study(name: str) -> None:
    assert set(re.findall(r"lce run ([\w-]+)", comment(name))) <= {name}


def test_prefect_yaml_is_the_text_generated_from_the_studies() -> None:
    written = (ROOT / "prefect.yaml").read_text(encoding="utf-8")
    assert written == prefect_yaml(), "run `python -m flows.servers.deployments > prefect.yaml`"


def test_every_shipped_study_has_a_deployment_of_its_name() -> None:
    listed = yaml.safe_load(prefect_yaml())["deployments"]
    of_study = [(entry["name"], entry["parameters"]["study"]) for entry in listed]
    assert of_study == [("controlled-study", "toy"), *((name, name) for name in shipped_studies())]


@pytest.mark.parametrize(
    ("name", "tags", "says"),
    [
        ("smoke", ["study"], "every kind of step.* tests an\ninstallation.\n\nHypothesis: The pip"),
        ("lceg-phi2", ["study", "gpu"], "Needs a\nGPU.\n\nHypothesis: As on Llama-2-7B"),
    ],
)
def test_a_deployment_describes_its_study(name: str, tags: list[str], says: str) -> None:
    listed = {one["name"]: one for one in yaml.safe_load(prefect_yaml())["deployments"]}
    assert listed[name]["tags"] == tags
    assert re.search(says, listed[name]["description"])


def test_the_documents_list_every_shipped_study() -> None:
    part = (ROOT / "docs" / "studies.md").read_text(encoding="utf-8")
    rows = part.partition("## Shipped studies")[2].partition("\n## ")[0]
    assert set(re.findall(r"^\| \[([\w-]+)\]", rows, flags=re.MULTILINE)) == set(shipped_studies())
