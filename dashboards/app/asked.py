"""What a sample asked, from a process that builds its prompt again: `python -m lce_core.prompts`.

A page needs neither tokenizers nor benchmarks; whoever opens a sample waits for them once.
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
_LOOK_SECONDS = 0.25


@dataclass(frozen=True)
class Answer:
    """What the process said."""

    found: dict[str, Any] | None
    """As `lce_core.prompts.wording.to_json` gives it; None where there is nothing to see."""
    reason: str = ""
    """Why there is nothing."""


def ask(home: Path, cell: str, sample: int, waiting: Callable[[float], object]) -> Answer:
    """The sample with its prompts, or why they cannot be shown.

    Args:
      home: the store's folder.
      cell: its id.
      sample: its number.
      waiting: called with the seconds so far; where it raises, the process is ended.
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
                    said, complaint = process.communicate(timeout=_LOOK_SECONDS)
                    break
                except subprocess.TimeoutExpired:
                    seconds = time.monotonic() - began
                    if seconds > MOST_SECONDS:
                        return Answer(None, _too_long(cell, sample))
                    waiting(seconds)
        finally:
            process.kill()  # nothing where it has ended
    if process.returncode:
        return Answer(None, complaint.strip() or f"the process ended with {process.returncode}")
    return Answer(json.loads(said))


def _too_long(cell: str, sample: int) -> str:
    return (
        f"The prompts of this cell take more than {MOST_SECONDS:.0f} s to build."
        f" `lce prompt {cell} {sample}` takes the time that it needs, and keeps them."
    )
