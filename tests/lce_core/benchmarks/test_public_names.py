"""The public names of lce_core.benchmarks suffice to write every shipped benchmark."""

import ast
from pathlib import Path

import pytest

import lce_core.benchmarks as public
from lce_core.benchmarks import BENCHMARKS

FOLDER = Path(public.__file__).parent


@pytest.mark.parametrize("name", BENCHMARKS.names())
def test_a_shipped_benchmark_imports_public_names_alone(name):
    for file in [*FOLDER.glob(f"{name}.py"), *FOLDER.glob(f"{name}/*.py")]:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            module = getattr(node, "module", None) or ""
            assert not module.startswith(f"{public.__name__}._"), f"{file} imports {module}"
