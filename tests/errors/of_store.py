import errno
import os
from pathlib import Path

from lce_core.benchmarks import CellResult, Score
from lce_core.errors import NonFiniteError, StoreError
from lce_core.runners import _require_finite
from lce_core.store.odd_files import set_aside
from tests.support.errors.provocations import Place, provokes
from tests.support.free_steps import free_step

STEP = free_step("rows", "toy", {"tokens": 1}, {})


@provokes(NonFiniteError, "perplexity")
def _(_: Place) -> None:
    score = Score("perplexity", float("inf"), None, None, 1, False)
    _require_finite(CellResult((score,)), STEP)


@provokes(StoreError, "mlflow.db")
def _(place: Place) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EACCES, os.strerror(errno.EACCES))

    place.patch.setattr(Path, "rename", refuse)
    set_aside(place.folder / "mlflow.db", "a folder")
