"""The results of `perf/gpu.py` as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]
Columns = Sequence[tuple[str, str, str]]
"""Key of a row, title of its column, and number format."""

TABLES: Mapping[str, tuple[str, Columns]] = {
    "token-graphs": (
        "Tokens from CUDA graphs",
        (
            ("method", "method", ""),
            ("length", "tokens before", "d"),
            ("plain", "ms/token", ".2f"),
            ("graphs", "with CUDA graphs", ".2f"),
        ),
    ),
    "training": (
        "Training",
        (
            ("model", "model", ""),
            ("layers", "layers", "d"),
            ("states", "states", ""),
            ("method", "method", ""),
            ("length", "tokens", "d"),
            ("rows", "rows a step", "d"),
            ("kept", "kept", ""),
            ("compiled", "compiled", ""),
            ("tokens_per_second", "tokens/s", ".0f"),
            ("mfu", "MFU", ".1%"),
            ("peak_memory_gib", "peak GiB", ".1f"),
            ("kernel", "kernel", ""),
        ),
    ),
    "kernel": (
        "Attention of one layer, forward and backward",
        (
            ("kernel", "kernel", ""),
            ("length", "tokens", "d"),
            ("milliseconds", "ms", ".1f"),
            ("teraflops", "TFLOP/s", ".0f"),
        ),
    ),
    "update": (
        "Updates of bf16 states",
        (
            ("part", "part", ""),
            ("parameters", "parameters", ",d"),
            ("milliseconds", "ms", ".1f"),
            ("milliseconds_of_whole_model", "ms for all layers", ".0f"),
        ),
    ),
    "speed": (
        "Inference",
        (
            ("method", "method", ""),
            ("length", "tokens", "d"),
            ("prefill_tokens_per_second", "prefill tokens/s", ".0f"),
            ("prefill_mfu", "MFU", ".1%"),
            ("prefill_memory_gib", "GiB", ".1f"),
            ("decode_milliseconds_per_token", "decode ms/token", ".2f"),
            ("decode_memory_gib", "GiB", ".1f"),
            ("kernel", "kernel", ""),
        ),
    ),
}
"""Title and columns of the table for each kind of row, in the order of the page."""


def as_markdown(found: Row) -> str:
    """Return the machine, how each section ended, and a table for each kind of measurement."""
    facts, sections = found["facts"], found["sections"]
    rows = [row for section in sections for row in section["rows"]]
    lines = [f"# {facts.get('gpu') or 'No GPU'}", ""]
    if found["dry_run"]:
        lines += ["**A dry run with a tiny model: these figures are not those of a GPU.**", ""]
    lines += [_where(found), "", "| section | ended | seconds | |", "|---|---|--:|---|"]
    for section in sections:
        tests = [row["counts"] for row in section["rows"] if row["what"] == "tests"]
        counts = ", ".join(f"{number} {word}" for row in tests for word, number in row.items())
        lines.append(f"| {section['name']} | {section['how']} | {section['seconds']} | {counts} |")
    for what, (title, columns) in TABLES.items():
        if chosen := [row for row in rows if row["what"] == what]:
            lines += ["", f"## {title}", "", *_table(columns, chosen)]
    for section in sections:
        if section["said"]:
            lines += ["", f"## {section['name']}: {section['how']}", "", "```text"]
            lines += [*section["said"].strip().splitlines(), "```"]
    return "\n".join(lines)


def _where(found: Row) -> str:
    facts = found["facts"]
    dirty = " with changes" if facts.get("dirty") else ""
    machine = (
        f"{facts.get('gpus')} x {facts['gpu']}, {facts.get('gpu_memory_gib')} GiB, compute"
        f" capability {facts.get('capability')}, driver {facts.get('driver')}, CUDA"
        f" {facts.get('cuda')}, cuDNN {facts.get('cudnn')}"
        if facts.get("gpu")
        else "no CUDA device"
    )
    return (
        f"`{found['command']}`, {found['at']}, {found['seconds']:.0f} s; commit"
        f" `{facts.get('commit') or 'unknown'}`{dirty}; {machine}; torch {facts.get('torch')},"
        f" transformers {facts.get('transformers')},"
        f" flash-attn {facts.get('flash_attn') or 'none'},"
        f" Python {facts.get('python')}, {facts.get('cpus')} CPUs. MFU is of the dense bf16 peak,"
        " with the FLOPs of docs/training.md, without recomputation."
    )


def _table(columns: Columns, rows: Sequence[Row]) -> Iterator[str]:
    """Yield the table of the rows with figures, then a list of the others with their reasons."""
    shown = [row for row in rows if "skipped" not in row and "failed" not in row]
    if shown:
        yield f"| {' | '.join(title for _, title, _ in columns)} |"
        yield f"|{'|'.join('--:' if form else '---' for _, _, form in columns)}|"
        for row in shown:
            yield f"| {' | '.join(_shown(row.get(key), form) for key, _, form in columns)} |"
        yield ""
    keys = [key for key, _, _ in columns]
    for row in rows:
        name = ", ".join(str(row[key]) for key in keys if key in row)
        if "skipped" in row:
            yield f"- skipped: {name}: {row['skipped']}"
        if "failed" in row:
            yield f"- failed: {name}: {row['failed']}"
        for reason in row.get("out_of_memory", ()):
            yield f"- out of memory before: {name}: {reason}"


def _shown(value: object, form: str) -> str:
    if value is None:
        return "-"
    return format(value, form) if form else str(value)
