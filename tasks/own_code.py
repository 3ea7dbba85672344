"""Environment of child processes that must run the code of this checkout.

`python -m` searches the current folder first, where another checkout or `tasks.py` may be.
"""

from __future__ import annotations

import os
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]


def python_path() -> str:
    paths = [str(_ROOT), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return os.pathsep.join(dict.fromkeys(paths))


def child_environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": python_path(), "PYTHONSAFEPATH": "1"}
