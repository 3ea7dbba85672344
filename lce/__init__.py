"""Controlled studies of long-context extension: the command `lce` and its Python interface.

    import lce

    results = lce.open("lce-home")
    scores = results.scores("toy").df()

[docs/python.md](../docs/python.md) describes the interface.
"""

import importlib.util
from pathlib import Path


def _require_own_packages() -> None:
    """Raise an ImportError if a module of the user's has the name of one of lce's packages.

    Python searches the folder of a script first.
    """
    root = Path(__file__).parents[1]
    for name in ("catalog", "dashboards", "flows", "lce_core", "tasks"):
        found = importlib.util.find_spec(name)
        file = found and found.origin
        if file and Path(file).resolve() != (root / name / "__init__.py").resolve():
            raise ImportError(
                f"{file} hides the package {name!r} of lce; expected {root / name}. Rename the"
                " file, or move it out of the folder of your script.",
                name=name,
                path=file,
            )


_require_own_packages()

from lce.api import Results, plan, run  # noqa: E402 - after the check
from lce.api import open_results as open  # noqa: A004, E402 - it reads like `gzip.open`

__all__ = ["Results", "open", "plan", "run"]
