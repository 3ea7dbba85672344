"""Measure everything that needs a GPU, in one command of less than nine minutes.

docs/training.md lists the sections. Each is a process with a share of the time, to which it can add
what earlier sections left over. The results so far are written after each section. What cannot run
here is skipped with its reason; a section that crashes or hangs makes the exit code 1.

    python perf/gpu.py [--out FOLDER] [--seconds 530] [--commit HASH] [--sections NAME ...]
    python perf/gpu.py --dry-run     # run every section with a tiny model on any machine

The script needs torch, transformers, accelerate, pydantic, pyarrow, psutil and pytest, but no
installation of this repository. Without a GPU it measures nothing and exits with code 3.
"""

import argparse
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from measuring import Row, markdown, parser

ROOT = Path(__file__).resolve().parents[1]
HERE = ROOT / "perf"
NO_GPU = 3
_METHODS = (
    *("none", "yarn", "harpe", "lm_infinite", "self_extend", "rerope", "streaming_llm"),
    *("clex", "dynamic_ntk_aware", "landmark"),
)
"""One method for each type of attention. landmark is last, because it adds a token to the model."""
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
_TAIL = 4000
"""Characters of a failed section's output that the report shows."""
_STOP_SECONDS = 10
"""Time that an interrupted section has to end by itself: pytest then prints its counts."""


@dataclass(frozen=True)
class Section:
    """One part of the measurement, run as a process."""

    name: str
    command: Sequence[str]
    """"{rows}" is replaced by the file for its rows, "{left}" by its seconds."""
    seconds: float
    """Share of the time of `--seconds`, if that is the sum of all shares; else in proportion."""


@dataclass
class Ended:
    """Result of a section."""

    name: str
    how: str
    """"done", "skipped" (no time left, or no row has figures), "failed" or "out of time"."""
    seconds: float = 0.0
    rows: Sequence[dict[str, Any]] = ()
    said: str = ""
    """Last part of its output, if it failed or was out of time."""


def main() -> int:
    """Run the sections and write FOLDER/<gpu>-<commit>.md and .json; return the exit code."""
    options = parsed(sys.argv[1:])
    if options.dry_run:
        # Threads of several processes on few cores wait for each other.
        os.environ.setdefault("OMP_NUM_THREADS", "1")
    begun, when = time.monotonic(), datetime.now(UTC)
    facts_command = Section("facts", _python(HERE / "gpu_common.py"), 60)
    (facts,) = run(facts_command, 60, Path(os.devnull)).rows or [{}]
    if not facts.get("gpu") and not options.dry_run:
        torch = facts.get("torch")
        seen = f"torch {torch} sees no CUDA device" if torch else "torch cannot be imported"
        print(
            f"No GPU found: {seen}. Nothing was measured or written.\n"
            "To try the command with a tiny model, run `python perf/gpu.py --dry-run`.",
            file=sys.stderr,
        )
        return NO_GPU
    ended: list[Ended] = []
    with tempfile.TemporaryDirectory(prefix="lce-gpu-") as folder:
        chosen = options.sections
        planned = [one for one in sections(options) if not chosen or one.name in chosen]
        shares = [section.seconds for section in planned]
        for number, section in enumerate(planned):
            left = options.seconds - (time.monotonic() - begun)
            limit = left - sum(shares[number + 1 :]) * options.seconds / sum(shares)
            ended.append(run(section, limit, Path(folder) / f"{section.name}.jsonl"))
            found = {
                "command": " ".join(["python", "perf/gpu.py", *sys.argv[1:]]),
                "dry_run": options.dry_run,
                "at": when.isoformat(timespec="seconds"),
                "seconds": round(time.monotonic() - begun, 1),
                "facts": {**facts, "commit": options.commit or facts.get("commit")},
                "sections": [asdict(section) for section in ended],
            }
            path = write(options.out, found)
            print(f"{found['seconds']:5.0f} s  {section.name}: {ended[-1].how}", flush=True)
    print(f"\n{as_markdown(found)}\nwritten to {path}.md and .json")
    return 0 if all(section.how in ("done", "skipped") for section in ended) else 1


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    out = ROOT / "docs" / "results" / "gpu"
    given = parser(__doc__, out=out, seconds=530.0, commit="", sections=(), dry_run=False)
    options = given.parse_args(arguments)
    names = [section.name for section in sections(options)]
    if unknown := set(options.sections).difference(names):
        given.error(f"no section {', '.join(sorted(unknown))}; sections: {', '.join(names)}")
    return options


def sections(options: argparse.Namespace) -> list[Section]:
    """Return all sections, the most important first."""
    dry = options.dry_run
    given = ["--shape", "tiny" if dry else "Llama-2-7B", "--rows", "{rows}", "--seconds", "{left}"]

    def measuring(script: str, *words: object, lengths: Sequence[int]) -> list[str]:
        texts = [256] if dry else lengths
        return _python(HERE / script, *words, "--lengths", *texts, *given)

    tests = _python("-m", "pytest", "-m", "gpu", "-q", "-p", "no:cacheprovider", ROOT / "tests")
    training, inference, methods = "gpu_training.py", "gpu_inference.py", ("--methods", *_METHODS)
    graphs = ("--token-graphs", "--methods", *_METHODS[:5:2])
    return [
        Section("tests", tests, 100),
        # After few tokens, launching kernels, which graphs avoid, takes longer than reading keys.
        Section("token-graphs", measuring(inference, *graphs, lengths=[2048]), 35),
        Section("training-32k", measuring(training, "--rows-per-step", 4, lengths=[32768]), 110),
        Section("training-64k", measuring(training, lengths=[65536]), 90),
        Section("layer", measuring("gpu_layer.py", lengths=[32768]), 30),
        Section("compiling", measuring(training, "--compiling", lengths=[32768]), 40),
        Section("inference", measuring(inference, *methods, lengths=[16384, 32768]), 125),
    ]


def run(section: Section, limit: float, rows: Path) -> Ended:
    """Run a section in its own process group, and stop the group after `limit` seconds."""
    if limit < 1:
        return Ended(section.name, "skipped", said="no time left")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell starts background jobs like this; the section would ignore the signal to end.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    begun = time.monotonic()
    # The process itself starts no measurement in the last part of its time.
    marks = {"{rows}": str(rows), "{left}": str(limit - min(25, limit / 4))}
    command = [marks.get(word, word) for word in section.command]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        # Avoid memory fragmentation by measurements of different sizes.
        "PYTORCH_ALLOC_CONF": "expandable_segments:True",
    }
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            how = "done" if process.wait(limit) == 0 else "failed"
        except subprocess.TimeoutExpired:
            how = "out of time"
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_STOP_SECONDS)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        output.seek(0)
        said = output.read()
    measured = list(_rows(rows, said, section.name))
    if how == "done" and measured and all("skipped" in row for row in measured):
        how = "skipped"
    tail = said[-_TAIL:] if how in ("failed", "out of time") else ""
    return Ended(section.name, how, round(time.monotonic() - begun, 1), measured, tail)


def _rows(rows: Path, said: str, name: str) -> Iterator[dict[str, Any]]:
    """Yield a section's rows: from its file, from pytest's summary, or from the printed facts."""
    if name == "facts":
        yield from (json.loads(line) for line in said.splitlines() if line.startswith("{"))
    elif name == "tests":
        last = said.strip().splitlines()[-1] if said.strip() else ""
        counts = re.findall(r"(\d+) (passed|failed|skipped|errors?)\b", last)
        yield {"what": "tests", "counts": {word: int(number) for number, word in counts}}
    elif rows.exists():
        lines = rows.read_text(encoding="utf-8").splitlines(keepends=True)
        yield from (json.loads(line) for line in lines if line.endswith("}\n"))


def write(folder: Path, found: dict[str, Any]) -> Path:
    """Write the .json and .md file; return their common path without suffix."""
    facts = found["facts"]
    device = re.sub(r"[^a-z0-9]+", "-", (facts.get("gpu") or "cpu").lower()).strip("-")
    path = folder / f"{device}-{(facts.get('commit') or 'unknown')[:7]}"
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(found, indent=1, sort_keys=True) + "\n"
    path.with_suffix(".json").write_text(text, encoding="utf-8")
    path.with_suffix(".md").write_text(as_markdown(found) + "\n", encoding="utf-8")
    return path


# The results as Markdown


def as_markdown(found: Row) -> str:
    """Return the machine, how each section ended, and a table for each kind of measurement."""
    facts, ended = found["facts"], found["sections"]
    rows = [row for section in ended for row in section["rows"]]
    lines = [f"# {facts.get('gpu') or 'No GPU'}", ""]
    if found["dry_run"]:
        lines += ["**A dry run with a tiny model: these figures are not those of a GPU.**", ""]
    lines += [_where(found), "", markdown(map(_ended, ended))]
    for what, title in TABLES.items():
        if chosen := [row for row in rows if row["what"] == what]:
            lines += ["", f"## {title}", "", *_table(chosen)]
    for section in ended:
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


def _python(*arguments: object) -> list[str]:
    return [sys.executable, *map(str, arguments)]


if __name__ == "__main__":
    sys.exit(main())
