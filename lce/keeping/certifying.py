"""`lce certify`: compare what other programs compute from a model's config.json with lce."""

import tempfile
import textwrap
from collections.abc import Sequence
from pathlib import Path

from lce_core.errors import SpecError, did_you_mean
from lce_core.export.runtimes import READERS, Agreement, certified, compare, read_stated

RUNTIMES = ("transformers", *READERS)
WIDTH = 80
LARGEST_DIFFERENCE = 1e-3
"""Float32 tables and sums cause at most this difference of logits, which are about 1."""


def certify(folder: Path, wanted: Sequence[str]) -> tuple[list[str], bool]:
    """Compare programs, by default all; return a table as lines, and True if all agree."""
    for name in wanted:
        if name not in RUNTIMES:
            raise SpecError("--with", name, " or ".join(RUNTIMES), did_you_mean(name, RUNTIMES))
    stated = read_stated(folder)
    import transformers
    from transformers.utils import logging

    from lce_core.export.logits import difference, write_tiny

    logging.disable_progress_bar()
    logging.set_verbosity_error()
    own = compare(stated, stated.reading)
    notes: list[str] = []
    agree = True
    table = [("program", "version", "tables", "attention", "logits")]
    with tempfile.TemporaryDirectory() as tiny:
        write_tiny(stated, Path(tiny))
        for name in dict.fromkeys(wanted or RUNTIMES):
            version = READERS[name][0] if name in READERS else transformers.__version__
            found = certified(stated, name) if name in READERS else own
            verdict, factor = "fails", ""
            logits: float | str = "not run"
            if isinstance(found, Agreement):
                verdict = "differs" if found.field else "agrees"
                factor = f"{found.attention_factor:.6g}"
                logits = difference(stated, Path(tiny), name)
                if name == "transformers" and isinstance(logits, str):
                    verdict = "not run"  # its tables are the stated ones
            if note := _note(found, logits):
                agree = False
            elif verdict == "not run":
                note = str(logits)
            notes += textwrap.wrap(f"{name} {note}.", WIDTH) if note else []
            shown = logits.partition(":")[0] if isinstance(logits, str) else f"{logits:.1e}"
            table.append((name, version, verdict, factor, shown))
    lines = [f"{a:<13} {b:<14} {c:<8} {d:<10} {e}".rstrip() for a, b, c, d, e in table]
    rope = stated.reading.rope["rope_type"]
    title = f"{stated.kind}, rope_type {rope}, {stated.context:,} tokens"
    return [title, *lines, *notes], agree


def _note(agreement: Agreement | str, logits: float | str) -> str | None:
    if isinstance(agreement, str):
        return agreement
    if agreement.field is None:
        if isinstance(logits, str):
            return logits if logits.startswith("fails") else None
        return "has other logits" if logits > LARGEST_DIFFERENCE else None
    where = "" if agreement.up_to is None else f", in texts of at most {agreement.up_to:,} tokens"
    size = f"frequencies or attention factor differ by {agreement.difference:.2g}"
    return f"reads {agreement.field} differently: {size} relatively{where}"
