"""Controlled studies of long-context extension: the command `lce` and its Python interface.

    import lce

    results = lce.open("lce-home")
    scores = results.scores("toy").df()

[docs/python.md](../docs/python.md) describes the interface.
"""

from lce.api import Results, plan, run
from lce.api import open_results as open  # noqa: A004 - `lce.open` reads like `gzip.open`

__all__ = ["Results", "open", "plan", "run"]
