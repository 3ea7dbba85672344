"""Command line and output of the speed scripts."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any


def command_line(docstring: str | None) -> argparse.ArgumentParser:
    """Return a parser with the option --out, described by a docstring's first line."""
    made = argparse.ArgumentParser(description=(docstring or "").split("\n")[0])
    made.add_argument("--out", type=Path, help="also write the figures as JSON")
    return made


def without_out(options: argparse.Namespace) -> dict[str, Any]:
    """Return the options that influence the figures: all but --out."""
    return {key: value for key, value in vars(options).items() if key != "out"}


def publish(found: dict[str, Any], out: Path | None, *more: object) -> None:
    """Print the machine, the commit and `more`; write all figures to `out` as JSON."""
    where = found["environment"]
    parts = [where["cpu"], f"{where['cpu_count']} cores", where["git"], *more]
    print(f"\n{', '.join(map(str, parts))}")
    if out:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
