"""Errors that no test beside their subject provokes, and the form of all messages."""

import ast
import copy
import importlib
import pickle
import re

import pytest

from lce_core import errors
from lce_core.errors import LceError, SpecError, StepsFailedError, StudyIncompleteError
from tests.support.errors.provocations import PROVOCATIONS, Place
from tests.support.repository import ROOT

for file in sorted((ROOT / "tests" / "errors").glob("of_*.py")):
    importlib.import_module(f"tests.errors.{file.stem}")  # adds to PROVOCATIONS


@pytest.mark.parametrize(
    "provocation",
    [
        pytest.param(
            one,
            marks=[pytest.mark.slow] if one.slow else [],
            id=f"{one.call.__module__.rpartition('.')[2]}-{one.value}",
        )
        for one in PROVOCATIONS
    ],
)
def test_an_error_names_the_value_that_it_is_about_and_what_to_do(
    provocation, tmp_path, monkeypatch
):
    with pytest.raises(LceError) as raised:
        provocation.call(Place(tmp_path, monkeypatch))
    error = raised.value
    assert type(error) is provocation.kind
    assert (provocation.value or str(tmp_path)) in f"{error.where}: got {error.got}"
    assert all(part.strip() for part in error.parts[:4])
    assert not re.search(r"\.$", error.remedy)
    assert re.match(r"[a-z`]", error.remedy), "an imperative in lower case"
    first = str(error).removesuffix(f":\n{error.details}")
    assert first == f"{error.where}: got {error.got}; expected {error.expected}; {error.remedy}"


FOREIGN = {
    "lce/__init__.py": {"ImportError"},
    "lce/commands/": {"typer.Exit"},
    "lce_core/contracts/": {"AssertionError"},
    "lce_core/corpora/_rows.py": {"ConnectionError"},
    "lce_core/models/_weights.py": {"ValueError"},
    "lce_core/store/odd_files.py": {"OSError", "ValueError"},
    # Readers of records catch OSError and ValueError alike; SealError says which damage it is.
    "lce_core/store/records.py": {"SealError", "ValueError"},
    "lce_core/store/study_folders.py": {"ValueError"},
    "lce_core/training/checkpoints.py": {"OSError"},
    "lce_core/training/launching.py": {"MemoryError", "OSError", "torch.OutOfMemoryError"},
    "tasks/ray_engine/cluster.py": {"ConnectionError"},
}
"""Files and folders with a caller that needs the class of another package's errors."""


def test_errors_of_others_are_raised_only_where_a_caller_needs_their_class():
    raised = _foreign_raises()
    allowed = {(place, name) for place, names in FOREIGN.items() for name in names}
    unknown = [
        (file, name)
        for file, name in raised
        if not any(file.startswith(place) and name == one for place, one in allowed)
    ]
    assert unknown == []


def _foreign_raises() -> list[tuple[str, str]]:
    """Return file and class of the raises of errors of no class of ours."""
    found = []
    known = {*vars(errors), "NotImplementedError"}
    packages = ("lce_core", "catalog", "tasks", "flows", "lce", "dashboards")
    for path in (file for package in packages for file in (ROOT / package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
                name = ast.unparse(node.exc.func)
                if name.rpartition(".")[2][:1].isupper() and name not in known:
                    found.append((path.relative_to(ROOT).as_posix(), name))
    return found


@pytest.mark.parametrize(
    "error",
    [
        SpecError("a.yaml: seeds", [-1], "seeds from 0", "choose others"),
        StepsFailedError("train-yarn", [{"class": "data", "error": "DataError", "message": "m"}]),
        StudyIncompleteError("toy", {"train-yarn": "data: gone"}, num_abandoned=2),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_cross_processes_as_they_are(error):
    for same in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(same) is type(error)
        assert (str(same), same.parts, vars(same)) == (str(error), error.parts, vars(error))
    restored = errors.restored(type(error).__name__, error.parts)
    assert str(restored) == str(error)


def test_a_list_of_failures_follows_the_message_line_by_line():
    error = StudyIncompleteError("toy", {"b": "second", "a": "first"}, num_abandoned=2)
    first, *lines = str(error).splitlines()
    assert "2 failed units" in first
    assert lines[:2] == ["  a: first", "  b: second"]
    assert "2 units" in lines[2]
