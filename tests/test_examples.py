"""The example plug-ins keep the contracts and say what transformers and json say."""

import itertools
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from typer.testing import CliRunner

from lce.cli import app
from lce_core.benchmarks import BENCHMARKS
from lce_core.contracts import benchmark_cases, benchmarks, methods
from lce_core.methods import METHODS
from lce_core.registry import Registry
from tests.support.plugin_copies import plugins_removed_after
from tests.support.repository import ROOT

FOLDER = ROOT / "docs" / "examples" / "plugins"
STUDY = FOLDER / "study.yaml"
PLACES: dict[str, Registry[Any]] = {"methods": METHODS, "benchmarks": BENCHMARKS}


@pytest.fixture(scope="module", autouse=True)
def _taking_part() -> Iterator[None]:
    with plugins_removed_after():
        for name, registry in PLACES.items():
            registry.add_folder(FOLDER / name)
        yield


def test_the_method_keeps_the_contract():
    plugin = METHODS.load("power_ramp")
    assert Path(str(sys.modules[plugin.__module__].__file__)).parent == FOLDER / "methods"
    with torch.no_grad():
        for check, example in itertools.product(methods.CHECKS, plugin.examples):
            check(plugin, example)


@pytest.mark.slow
def test_the_benchmark_keeps_the_contract():
    plugin = BENCHMARKS.load("json_key_value")
    assert Path(str(sys.modules[plugin.__module__].__file__)).parent == FOLDER / "benchmarks"
    tried = benchmark_cases.cases(plugin, dict)
    assert {case.profile for case in tried} == {"clean", "fast"}
    for check, case in itertools.product(benchmarks.checks(plugin), tried):
        if case.profile == "fast" or check is benchmarks.check_form:
            check(case)


def test_the_example_study_is_planned_with_every_cell_to_do(tmp_path):
    command = ["plan", str(STUDY), "--plugins", str(FOLDER), "--json"]
    done = CliRunner().invoke(app, command, env={"LCE_HOME": str(tmp_path / "home")})
    assert done.exit_code == 0, done.output
    cells = json.loads(done.stdout)["cells"]
    written = yaml.safe_load(STUDY.read_text(encoding="utf-8"))
    lengths = sum(len(entry["lengths"]) for entry in written["benchmarks"])
    tasks = 4 + 2  # perplexity has two domains
    assert lengths == 4
    assert len(cells) == len(written["methods"]) * tasks
    assert {cell["state"] for cell in cells} == {"missing"}
    assert {cell["method"] for cell in cells} == {"none", "yarn", "power_ramp"}
    assert {cell["benchmark"] for cell in cells} == {"perplexity", "json_key_value"}
    assert not (tmp_path / "home").exists()
