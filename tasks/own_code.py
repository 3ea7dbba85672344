"""Environment of child processes that must run the code of this checkout.

`python -m` searches the current folder first. If that folder contained a file `tasks.py` or another
checkout, the child would run that code instead of the code that planned the study.
"""

from __future__ import annotations

import os
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]


def python_path() -> str:
    """Return this process's PYTHONPATH with the folder of this code in front."""
    paths = [str(_ROOT), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return os.pathsep.join(dict.fromkeys(paths))


def child_environment() -> dict[str, str]:
    """Return the environment of this process, changed so that a child imports this code first."""
    return {**os.environ, "PYTHONPATH": python_path(), "PYTHONSAFEPATH": "1"}
