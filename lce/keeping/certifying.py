"""`lce certify`: compare what other programs compute from a model's config.json with lce."""

import tempfile
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path

from lce_core.errors import SpecError, did_you_mean
from lce_core.export.runtimes import (
    READERS,
    Agreement,
    Stated,
    certified,
    compare,
    read_stated,
)

RUNTIMES = ("transformers", *READERS)
WIDTH = 80
_LOGITS = 1e-3
"""Largest difference of logits that float32 tables and sums cause. Logits are about 1."""


def certify(folder: Path, wanted: Sequence[str]) -> tuple[list[str], bool]:
    """Compare programs, by default all; return a table as lines, and True if all agree."""
    for name in wanted:
        if name not in RUNTIMES:
            raise SpecError("--with", name, " or ".join(RUNTIMES), did_you_mean(name, RUNTIMES))
    stated = read_stated(folder)
    rows, notes, agree = [], [], True
    with tempfile.TemporaryDirectory() as tiny:
        found = _differences(stated, Path(tiny), [*dict.fromkeys(wanted or RUNTIMES)])
        for name, version, agreement, logits in found:
            note = _note(agreement, logits)
            agree &= note is None
            notes += [] if note is None else textwrap.wrap(f"{name} {note}.", WIDTH)
            verdict, factor = "fails", ""
            if isinstance(agreement, Agreement):
                verdict = "differs" if agreement.field else "agrees"
                factor = f"{agreement.attention_factor:.6g}"
            shown = logits.partition(":")[0] if isinstance(logits, str) else f"{logits:.1e}"
            rows.append((name, version, verdict, factor, shown))
    table = [("program", "version", "tables", "attention", "logits"), *rows]
    lines = [f"{a:<13} {b:<14} {c:<8} {d:<10} {e}".rstrip() for a, b, c, d, e in table]
    rope = stated.reading.rope["rope_type"]
    title = f"{stated.kind}, rope_type {rope}, {stated.context:,} tokens"
    return [title, *lines, *notes], agree


def _differences(
    stated: Stated, tiny: Path, names: Sequence[str]
) -> Iterator[tuple[str, str, Agreement | str, float | str]]:
    import transformers
    from transformers.utils import logging

    from lce_core.export.logits import difference, write_tiny

    logging.disable_progress_bar()
    logging.set_verbosity_error()
    write_tiny(stated, tiny)
    own = compare(stated, stated.reading)
    for name in names:
        version = READERS[name][0] if name in READERS else transformers.__version__
        found = certified(stated, name) if name in READERS else own
        logits = "not run" if isinstance(found, str) else difference(stated, tiny, name)
        yield name, version, found, logits


def _note(agreement: Agreement | str, logits: float | str) -> str | None:
    if isinstance(agreement, str):
        return agreement
    if agreement.field is None:
        if isinstance(logits, str):
            return logits if logits.startswith("fails") else None
        return "has other logits" if logits > _LOGITS else None
    where = "" if agreement.up_to is None else f", in texts of at most {agreement.up_to:,} tokens"
    size = f"frequencies or attention factor differ by {agreement.difference:.2g}"
    return f"reads {agreement.field} differently: {size} relatively{where}"
