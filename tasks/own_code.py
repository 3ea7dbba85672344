"""Processes that run this very code, whatever folder they are started in.

`python -m` looks in the current folder first: a `tasks.py` there, or another checkout, would run in
place of the code that planned the study.
"""

from __future__ import annotations

import os
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]


def python_path() -> str:
    """PYTHONPATH of this process, after the folder that this code lies in."""
    paths = [str(_ROOT), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return os.pathsep.join(dict.fromkeys(paths))


def of_own_code() -> dict[str, str]:
    """Environment of a child process: this one's, and this code before all other."""
    return {**os.environ, "PYTHONPATH": python_path(), "PYTHONSAFEPATH": "1"}
