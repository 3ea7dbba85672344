"""The results of `perf/gpu.py` as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

Row = dict[str, Any]

TRAINING = (
    ("model", "model", ""),
    ("layers", "layers", ""),
    ("states", "states", ""),
    ("method", "method", ""),
    ("length", "tokens", "d"),
    ("tokens_per_second", "tokens/s", ".0f"),
    ("mfu", "MFU", ".1%"),
    ("peak_memory_gib", "peak GiB", ".1f"),
    ("kernel", "kernel", ""),
    ("kernels", "what ran", ""),
)
INFERENCE = (
    ("method", "method", ""),
    ("length", "tokens", "d"),
    ("prefill_tokens_per_second", "prefill tokens/s", ".0f"),
    ("prefill_mfu", "MFU", ".1%"),
    ("prefill_memory_gib", "GiB", ".1f"),
    ("decode_milliseconds_per_token", "decode ms/token", ".2f"),
    ("decode_memory_gib", "GiB", ".1f"),
    ("kernel", "kernel", ""),
    ("kernels", "what ran", ""),
)
REPLAYED = (
    ("method", "method", ""),
    ("length", "tokens before", "d"),
    ("plain", "ms/token", ".2f"),
    ("graphs", "from CUDA graphs", ".2f"),
    ("kernel", "kernel", ""),
)
STUDY = (
    ("step", "training run", ""),
    ("steps", "steps", "d"),
    ("tokens_per_second", "tokens/s", ".0f"),
    ("mfu", "MFU", ".1%"),
    ("peak_memory_gib", "peak GiB", ".1f"),
)
TABLES = (
    ("training", "Training", TRAINING),
    ("inference", "Inference", INFERENCE),
    ("replayed", "Tokens from CUDA graphs", REPLAYED),
)


def as_markdown(found: Row) -> str:
    """Return the machine, how each section ended, and a table of the measurements."""
    facts, sections = found["facts"], found["sections"]
    rows = [row for section in sections for row in section["rows"]]
    lines = [f"# {facts.get('gpu') or 'No GPU'}", ""]
    if found["dry_run"]:
        lines += ["**A dry run with a tiny model: these figures are not those of a GPU.**", ""]
    lines += [_where(found), "", "| section | ended | seconds | |", "|---|---|--:|---|"]
    for section in sections:
        tests = [row for row in section["rows"] if row["what"] == "tests"]
        counts = ", ".join(f"{row[k]} {k}" for row in tests for k in row if k != "what")
        lines.append(f"| {section['name']} | {section['how']} | {section['seconds']} | {counts} |")
    for what, title, columns in TABLES:
        if chosen := [row for row in rows if row["what"] == what]:
            lines += ["", f"## {title}", "", *_table(columns, chosen)]
            lines += _refusals(chosen)
    if study := [row for row in rows if row["what"] == "study"]:
        done = sum(row["cells"] for row in study if "cells" in row)
        trained = [row for row in study if "step" in row]
        lines += [
            "",
            "## smollm2-tuned",
            "",
            f"{done} cells finished within the time limit.",
            "",
        ]
        lines += _table(STUDY, trained) if trained else []
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


def _table(columns: Sequence[tuple[str, str, str]], rows: Iterable[Row]) -> list[str]:
    heads = " | ".join(title for _, title, _ in columns)
    sides = "|".join("--:" if form else "---" for _, _, form in columns)
    lines = [f"| {heads} |", f"|{sides}|"]
    for row in rows:
        shown = " | ".join(_shown(row.get(key), form) for key, _, form in columns)
        lines.append(f"| {shown} |")
    return lines


def _shown(value: object, form: str) -> str:
    if value is None:
        return "-"
    if isinstance(value, list):
        return ", ".join(f"`{one}`" for one in value) or "-"
    return format(value, form) if form else str(value)


def _refusals(rows: Iterable[Row]) -> list[str]:
    """Return a list of the settings that did not fit or failed, for below the table."""
    lines = [
        f"- {row['method']} at {row['length']}: {reason}"
        for row in rows
        for reason in row.get("refused", [])
    ]
    return ["", "Settings that failed:", "", *lines] if lines else []
