"""An environment like that of a bare GPU machine, which has only what `pytest -m gpu` needs.

Python finds no other package that is installed here, as if it were not installed.
"""

import os
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.repository import ROOT

PRESENT = ("torch", "transformers", "accelerate", "pydantic", "pyarrow", "psutil", "pytest")
"""Packages of the machine, which docs/training.md names; their dependencies are there as well."""
_HIDE = """
import sys
from importlib.machinery import PathFinder

HIDDEN = {names!r}


class Finder(PathFinder):
    @classmethod
    def find_spec(cls, fullname, path=None, target=None):
        if fullname.partition(".")[0] in HIDDEN:
            return None
        return super().find_spec(fullname, path, target)


sys.meta_path[sys.meta_path.index(PathFinder)] = Finder
"""


def bare_environment(folder: Path, more: tuple[str, ...] = ()) -> dict[str, str]:
    """Return the environment variables of a Python process that finds only `PRESENT` and `more`.

    Args:
      folder: empty folder that receives the module which hides the other packages.
      more: further packages that it finds.
    """
    code = _HIDE.format(names=sorted(_hidden_modules((*PRESENT, *more))))
    # Python imports sitecustomize at its start.
    (folder / "sitecustomize.py").write_text(code, encoding="utf-8")
    environment = os.environ | {
        "CUDA_VISIBLE_DEVICES": "",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)]),
    }
    environment.pop("PYTEST_ADDOPTS", None)
    return environment


def _hidden_modules(present: tuple[str, ...]) -> set[str]:
    needed, waiting = set(), [canonicalize_name(name) for name in present]
    while waiting:
        name = waiting.pop()
        if name in needed:
            continue
        try:
            requirements = metadata.requires(name) or []
        except metadata.PackageNotFoundError:  # CUDA libraries, for a CPU build of torch
            continue
        needed.add(name)
        waiting += [
            canonicalize_name(requirement.name)
            for requirement in map(Requirement, requirements)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        ]
    return {
        module
        for module, packages in metadata.packages_distributions().items()
        if needed.isdisjoint(map(canonicalize_name, packages)) and module != "lce"
    }
