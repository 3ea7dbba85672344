"""Code shared by the section scripts of `perf/gpu.py`: options, models, rows."""

from __future__ import annotations

import argparse
import json
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from lce_core.errors import LceError
from lce_core.models import MODELS, LanguageModel
from lce_core.study.plugin_folders import add_plugin_folders

PLUGINS = Path(__file__).parent / "plugins"
SHAPES: dict[str, dict[str, int]] = {
    "Llama-2-7B": {},
    "tiny": {"layers": 2, "heads": 2, "head_dim": 16, "intermediate_size": 48, "trained": 128},
}


class SkippedError(Exception):
    """Ends a measurement that this machine cannot make; the message is the reason."""


class Rows:
    """The rows of a section: a JSON line for each measurement, written when it ends.

    Args:
      path: file that receives the rows.
      seconds: time limit of the section; no measurement starts later.
    """

    def __init__(self, path: Path, seconds: float) -> None:
        self._path = path
        self.deadline = time.monotonic() + seconds
        self.failed = False

    def add(
        self, row: Mapping[str, Any], measure: Callable[..., Mapping[str, Any]], *given: Any
    ) -> None:
        """Write `row` with the figures that `measure(*given)` returns.

        A measurement that does not fit into memory or time, or that lce refuses, gets the reason
        as `skipped`. Any other exception is a defect: the row gets it as `failed`, its traceback
        is printed, and the section continues with its next measurement.
        """
        found: Mapping[str, Any]
        try:
            if time.monotonic() > self.deadline:
                raise SkippedError("no time left")
            found = measure(*given)
        except (SkippedError, LceError, torch.OutOfMemoryError) as reason:
            found = {"skipped": first_line(reason)}
        except Exception as error:  # noqa: BLE001 - one defect must not hide other figures
            traceback.print_exc()
            self.failed = True
            found = {"failed": f"{type(error).__name__}: {first_line(error)}"}
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({**row, **found}) + "\n")

    def exit_code(self) -> int:
        return int(self.failed)


def first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), "")[:160]


def parser(described: str | None) -> argparse.ArgumentParser:
    """Return the parser of the options that `perf/gpu.py` passes to every section script."""
    made = argparse.ArgumentParser(description=(described or "").split("\n")[0])
    made.add_argument("--shape", choices=sorted(SHAPES), default="Llama-2-7B")
    made.add_argument("--seconds", type=float, default=120.0, help="last start of a measurement")
    made.add_argument("--rows", type=Path, required=True, help="receives rows as JSON lines")
    return made


def random_llama(shape: str, **sizes: int) -> LanguageModel:
    """Return a base model with random weights; `sizes` override sizes of `SHAPES[shape]`."""
    add_plugin_folders((PLUGINS,))
    return MODELS.parse({"name": "random_llama", **SHAPES[shape], **sizes}, "perf/gpu")


def gib(number: int) -> float:
    """Return a number of bytes in GiB, with two decimals."""
    return round(number / 2**30, 2)
