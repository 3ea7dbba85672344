"""The results of `perf/gpu.py` as Markdown."""

from collections.abc import Sequence

from measuring import Row, markdown

TABLES = {
    "token-graphs": "Tokens from CUDA graphs",
    "training": "Training",
    "kernel": "Attention of one layer, forward and backward",
    "update": "Updates of bf16 states",
    "speed": "Inference",
}
"""Title of the table for each kind of row, in the order of the page."""
_UNSHOWN = ("what", "steps", "loss", "out_of_memory", "skipped", "failed")
"""Keys of rows that are no columns."""


def as_markdown(found: Row) -> str:
    """Return the machine, how each section ended, and a table for each kind of measurement."""
    facts, sections = found["facts"], found["sections"]
    rows = [row for section in sections for row in section["rows"]]
    lines = [f"# {facts.get('gpu') or 'No GPU'}", ""]
    if found["dry_run"]:
        lines += ["**A dry run with a tiny model: these figures are not those of a GPU.**", ""]
    lines += [_where(found), "", markdown(map(_ended, sections))]
    for what, title in TABLES.items():
        if chosen := [row for row in rows if row["what"] == what]:
            lines += ["", f"## {title}", "", *_table(chosen)]
    for section in sections:
        if section["said"]:
            lines += ["", f"## {section['name']}: {section['how']}", "", "```text"]
            lines += [*section["said"].strip().splitlines(), "```"]
    return "\n".join(lines)


def _ended(section: Row) -> Row:
    tests = [row["counts"] for row in section["rows"] if row["what"] == "tests"]
    counts = ", ".join(f"{number} {word}" for row in tests for word, number in row.items())
    named = {"section": section["name"], "ended": section["how"], "seconds": section["seconds"]}
    return {**named, "tests": counts}


def _where(found: Row) -> str:
    facts = found["facts"]
    known = [f"{name.replace('_', ' ')} {facts[name]}" for name in facts if facts[name] is not None]
    return (
        f"`{found['command']}`, {found['at']}, {found['seconds']:.0f} s; {', '.join(known)}."
        " MFU is of the dense bf16 peak, with the FLOPs of docs/training.md, without recomputation."
    )


def _table(rows: Sequence[Row]) -> list[str]:
    """Return the table of the rows with figures, then a list of the others with their reasons."""
    shown, reasons = [], []
    for row in rows:
        cells = {key.replace("_", " "): row[key] for key in row if key not in _UNSHOWN}
        name = ", ".join(map(str, cells.values()))
        missing = [how for how in ("skipped", "failed") if how in row]
        reasons += [f"- {how}: {name}: {row[how]}" for how in missing]
        reasons += [
            f"- out of memory before: {name}: {one}" for one in row.get("out_of_memory", ())
        ]
        if not missing:
            shown.append(cells)
    return [*([markdown(shown), ""] if shown else []), *reasons]
