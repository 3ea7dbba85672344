"""Measure everything that needs a GPU, in one command of less than nine minutes.

The sections, most important first, because time may run out: all tests marked `gpu`; training of
Llama-2-7B with random weights at 32k and 64k tokens; prefill and decoding of each method; then as
much of the study smollm2-tuned as time allows. Each section is a process with a time limit, so that
one that fails or hangs does not affect the others. Its rows so far are kept, and the report says
how it ended.

    python perf/gpu.py [--out FOLDER] [--seconds 530]
    python perf/gpu.py --dry-run     # try the command with a tiny model on any machine

The script needs torch, transformers, accelerate, pydantic, pyarrow, psutil and pytest, but no
installation of this repository. Without a GPU it measures nothing and exits with code 3.
"""

from __future__ import annotations

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
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gpu_report import as_markdown

ROOT = Path(__file__).resolve().parents[1]
HERE = ROOT / "perf"
NO_GPU = 3
_METHODS = (
    *("none", "yarn", "harpe", "lm_infinite", "self_extend", "rerope", "streaming_llm"),
    *("clex", "dynamic_ntk_aware", "landmark"),
)
"""One method for each type of attention. landmark is last, because it adds a token to the model."""
_TAIL = 1500
"""Characters of a failed section's output that the report shows."""


@dataclass(frozen=True)
class Section:
    """One part of the measurement, run as a process."""

    name: str
    command: Sequence[str]
    """"{rows}" is replaced by the file for its rows, "{left}" by its seconds."""
    least: float
    """Seconds that must be left to start the section."""
    most: float
    """Time limit in seconds."""


@dataclass
class Ended:
    """Result of a section."""

    name: str
    how: str
    """"done", "failed", "out of time" or "no time left"."""
    seconds: float = 0.0
    rows: list[dict[str, Any]] = field(default_factory=list)
    said: str = ""
    """Last part of its output, unless `how` is "done"."""


def main() -> int:
    """Run the sections and write FOLDER/<gpu>-<commit>.md and .json; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "results" / "gpu")
    parser.add_argument("--seconds", type=float, default=530.0, help="time limit of the command")
    parser.add_argument("--commit", help="commit of the code, if it is not a git checkout")
    parser.add_argument("--sections", nargs="+", help="run only these sections")
    parser.add_argument("--study-home", type=Path, help="LCE_HOME with a fetched smollm2_135m_q4")
    parser.add_argument("--dry-run", action="store_true", help="a tiny shape on any machine")
    options = parser.parse_args()
    begun, when = time.monotonic(), datetime.now(UTC)
    (facts,) = run(
        Section("facts", _python(HERE / "gpu_facts.py"), 0, 60), 60, Path(os.devnull)
    ).rows or [{}]
    if not facts.get("gpu") and not options.dry_run:
        print(_no_gpu(facts), file=sys.stderr)
        return NO_GPU
    ended = []
    with tempfile.TemporaryDirectory(prefix="lce-gpu-") as folder:
        for section in sections(options, Path(folder)):
            left = options.seconds - (time.monotonic() - begun)
            rows = Path(folder) / f"{section.name}.jsonl"
            if left < section.least:
                ended.append(Ended(section.name, "no time left"))
            else:
                ended.append(run(section, left, rows))
            print(f"{time.monotonic() - begun:5.0f} s  {section.name}: {ended[-1].how}", flush=True)
    found = {
        "command": " ".join(["python", "perf/gpu.py", *sys.argv[1:]]),
        "dry_run": options.dry_run,
        "at": when.isoformat(timespec="seconds"),
        "seconds": round(time.monotonic() - begun, 1),
        "facts": {**facts, "commit": options.commit or facts.get("commit")},
        "sections": [asdict(section) for section in ended],
    }
    path = write(options.out, found)
    print(f"\n{as_markdown(found)}\nwritten to {path}.md and .json")
    return 0 if all(section.how in ("done", "no time left") for section in ended) else 1


def sections(options: argparse.Namespace, folder: Path) -> list[Section]:
    """Return the sections to run, the most important first."""
    dry = options.dry_run
    shape = "tiny" if dry else "Llama-2-7B"
    tests = _python("-m", "pytest", "-m", "gpu", "-q", "-p", "no:cacheprovider", ROOT / "tests")

    def measuring(script: str, lengths: Sequence[int], methods: Sequence[str]) -> list[str]:
        given = ["--lengths", *map(str, lengths), "--methods", *methods, "--shape", shape]
        return _python(HERE / script, *given, "--rows", "{rows}", "--seconds", "{left}")

    def training(*lengths: int) -> list[str]:
        return measuring("gpu_training.py", lengths, ["none"])

    def inference(methods: Sequence[str], *lengths: int) -> list[str]:
        return measuring("gpu_inference.py", lengths, methods)

    if dry:
        found = [
            Section("tests", tests, 5, 900),
            Section("training", training(64, 128), 5, 900),
            Section("inference", inference(["none", "self_extend", "landmark"], 256), 5, 900),
        ]
    else:
        home = (options.study_home or folder / "lce-home").resolve()
        given = ["--home", home, "--rows", "{rows}", "--seconds", "{left}"]
        study = _python(HERE / "gpu_study.py", *given)
        found = [
            Section("tests", tests, 30, 150),
            Section("training-32k", training(32768), 30, 110),
            Section("training-64k", training(65536), 45, 130),
            Section("inference", inference(_METHODS, 16384, 32768), 30, 170),
            Section("smollm2-tuned", study, 40, 600),
        ]
    return [one for one in found if options.sections is None or one.name in options.sections]


def run(section: Section, left: float, rows: Path) -> Ended:
    """Run a section in its own process group, and kill the group after its time limit."""
    limit, begun = min(section.most, left), time.monotonic()
    # The process itself stops starting new measurements 25 s before it is killed.
    marks = {"{rows}": str(rows), "{left}": str(max(1.0, limit - 25))}
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
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        output.seek(0)
        said = output.read()
    measured = list(_rows(rows, said, section.name))
    tail = "" if how == "done" else said[-_TAIL:]
    return Ended(section.name, how, round(time.monotonic() - begun, 1), measured, tail)


def _rows(rows: Path, said: str, name: str) -> Iterator[dict[str, Any]]:
    """Yield a section's rows: from its file, from pytest's summary, or from the printed facts."""
    if name == "facts":
        yield from (json.loads(line) for line in said.splitlines() if line.startswith("{"))
    elif name == "tests":
        last = said.strip().splitlines()[-1] if said.strip() else ""
        counts = re.findall(r"(\d+) (passed|failed|skipped|errors?)\b", last)
        yield {"what": "tests", **{word: int(number) for number, word in counts}}
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


def _python(*arguments: object) -> list[str]:
    return [sys.executable, *map(str, arguments)]


def _no_gpu(facts: dict[str, Any]) -> str:
    torch = facts.get("torch")
    seen = f"torch {torch} sees no CUDA device" if torch else "torch cannot be imported"
    return (
        f"No GPU found: {seen}. Nothing was measured or written.\n"
        "To try the command with a tiny model, run `python perf/gpu.py --dry-run`."
    )


if __name__ == "__main__":
    sys.exit(main())
