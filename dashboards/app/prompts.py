"""Rebuild a sample's prompt in a subprocess: `python -m lce_core.prompts`.

Because of the subprocess, the dashboard itself loads neither tokenizers nor benchmarks. Only a
viewer who opens a sample waits for them to load.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MOST_SECONDS = 600.0
_POLL_SECONDS = 0.25


@dataclass(frozen=True)
class Prompts:
    """A sample's rebuilt prompts, or the reason why they cannot be shown."""

    found: dict[str, Any] | None
    """The JSON object that `lce_core.prompts` prints; None if the prompts cannot be shown."""
    reason: str = ""
    """Why the prompts cannot be shown; "" if they can."""


def build_prompts(
    home: Path, cell: str, sample: int, waiting: Callable[[float], object]
) -> Prompts:
    """Run `lce_core.prompts` to rebuild a sample's prompts, for at most `MOST_SECONDS`.

    Args:
      cell: id of the cell.
      sample: number of the sample in the cell.
      waiting: called several times a second with the elapsed seconds. If it raises an exception,
        the subprocess is killed.
    """
    command = [sys.executable, "-m", "lce_core.prompts", "--home", str(home)]
    process = subprocess.Popen(
        [*command, "--cell", cell, "--sample", str(sample)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )
    began = time.monotonic()
    with process:
        try:
            while True:
                try:
                    output, complaint = process.communicate(timeout=_POLL_SECONDS)
                    break
                except subprocess.TimeoutExpired:
                    seconds = time.monotonic() - began
                    if seconds > MOST_SECONDS:
                        return Prompts(None, _too_long(cell, sample))
                    waiting(seconds)
        finally:
            process.kill()  # no effect after a normal exit
    if process.returncode:
        failed = f"the process failed with exit code {process.returncode}"
        return Prompts(None, complaint.strip() or failed)
    return Prompts(json.loads(output))


def _too_long(cell: str, sample: int) -> str:
    return (
        f"Building the prompts of this cell takes more than {MOST_SECONDS:.0f} s."
        f" Run `lce prompt {cell} {sample}`, which has no time limit and caches the prompts."
    )
