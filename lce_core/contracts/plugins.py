"""Checks that every plug-in must pass: source, description, evidence, identity."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from lce_core.contracts import written_out
from lce_core.evidence import Evidence, OfFunction, computation
from lce_core.registry import Plugin, Registry

PAPER = re.compile(r"arXiv:\d{4}\.\d{4,5}|doi:10\.\d{4,9}/\S+|https://\S+|own")
REFERENCE = re.compile(r"[\w.-]+\.[a-z]+/[\w./-]+@[0-9a-f]{40}|https://\S+|own")


def built(plugin: type[Plugin], parameters: Mapping[str, Any]) -> Any:
    """Return the plug-in with these parameters, validated as in a study file."""
    return plugin.model_validate_json(json.dumps(dict(parameters)))


def check_source(plugin: type[Plugin]) -> None:
    """Check that SOURCE names a paper, a section of it and the code to compare with."""
    source = plugin.source
    assert PAPER.fullmatch(source.paper), (
        f"SOURCE.paper {source.paper!r}: neither an arXiv id, a DOI, a page nor 'own'"
    )
    assert source.place, "SOURCE.place is empty"
    for reference in source.reference.split("; "):
        assert REFERENCE.fullmatch(reference), (
            f"SOURCE.reference {reference!r}: neither a repository at a commit of 40 hexadecimal"
            " digits, nor a page, nor 'own'"
        )


def check_description(plugin: type[Plugin]) -> None:
    """Check that the file, its VERSION and every parameter are described."""
    assert plugin.summary.endswith("."), f"the docstring's first line {plugin.summary!r}: no period"
    assert len(plugin.summary) > 20, f"the docstring's first line {plugin.summary!r}: too short"
    version = plugin.plugin_version
    assert type(version) is int, f"VERSION is {version!r}; expected an integer"
    assert version >= 1, f"VERSION is {version}; expected at least 1"
    silent = [name for name, field in plugin.model_fields.items() if not field.description]
    assert not silent, f"parameters without a docstring: {silent}"


def check_evidence(plugin: type[Plugin]) -> None:
    """Check that every reference value is a literal that the plug-in's own code reproduces."""
    assert plugin.evidence, "EVIDENCE is empty"
    hollow = [*written_out.faults(Path(str(sys.modules[plugin.__module__].__file__)))]
    assert not hollow, f"EVIDENCE: {'; '.join(hollow)}"
    ran_own_code = [_recomputed(plugin, evidence) for evidence in plugin.evidence]
    assert any(ran_own_code) or getattr(plugin, "family", "") == "none", (
        "EVIDENCE: no value is computed by the plug-in's own code"
    )


def check_identity(
    registry: Registry[Any], plugin: type[Plugin], example: Mapping[str, Any]
) -> None:
    """Check that a plug-in can be rebuilt from its identity, which omits exactly the defaults."""
    made = built(plugin, example)
    identity = made.identity()
    assert registry.from_identity(identity) == made
    assert identity["name"] == plugin.plugin_name
    assert identity["version"] == plugin.plugin_version
    fields = plugin.model_fields.items()
    kept = {key for key, field in fields if getattr(made, key) != field.get_default()}
    assert set(identity) == {"name", "version", *kept}


def _recomputed(plugin: type[Plugin], evidence: Evidence) -> bool:
    """Check one reference value; return True if the plug-in's own code computed it."""
    assert evidence.origin, f"{evidence}: no origin"
    answer, files = _traced(computation(plugin, evidence))
    assert _agree(answer, evidence.expected, evidence.tolerance), (
        f"EVIDENCE: got {answer!r}; expected {evidence.expected!r} ({evidence.origin})"
    )
    own = bool(files & own_files(plugin))
    assert own or not isinstance(evidence.subject, OfFunction), (
        f"EVIDENCE: {evidence.subject.function.__qualname__}() runs no code of the plug-in"
    )
    return own


def own_files(plugin: type[Plugin]) -> set[str]:
    """Return the source files of the plug-in's own class and base classes.

    If one is in an `__init__.py` or in a folder whose name starts with "_", all files below that
    folder count. Files of the public base classes, such as `Method`, do not count.
    """
    kind_files = {sys.modules[base.__module__].__file__ for base in _public(plugin)}
    found: set[str] = set()
    for base in plugin.__mro__:
        file = getattr(sys.modules.get(base.__module__), "__file__", None)
        if not issubclass(base, Plugin) or file is None or file in kind_files:
            continue
        path = Path(file)
        folder = path.parent
        family = path.name == "__init__.py" or folder.name.startswith("_")
        found |= {str(one) for one in folder.rglob("*.py")} if family else {file}
    return found


def _public(plugin: type[Plugin]) -> list[type]:
    room = sys.modules[".".join(plugin.__module__.split(".")[:2])]
    offered = {value for value in vars(room).values() if isinstance(value, type)}
    return [base for base in plugin.__mro__ if base in offered or base is Plugin]


def _traced(call: Callable[[], Any]) -> tuple[Any, set[str]]:
    files: set[str] = set()

    def seen(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            files.add(frame.f_code.co_filename)

    before = sys.getprofile()
    sys.setprofile(seen)
    try:
        answer = call()
    finally:
        sys.setprofile(before)
    return answer, files


def _agree(answer: Any, expected: Any, tolerance: float) -> bool:
    try:
        found, wanted = np.asarray(answer, dtype=float), np.asarray(expected, dtype=float)
    except (TypeError, ValueError):
        return bool(answer == expected)
    # None converts to NaN, so both results must lack a value in the same places.
    alike = np.allclose(found, wanted, rtol=tolerance, atol=0, equal_nan=True)
    return found.shape == wanted.shape and alike
