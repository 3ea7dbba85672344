"""The command line as a user has it, and a small study for it.

Every command is a process of its own and sees none of the suite's settings of servers.
"""

import contextlib
import hashlib
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import sysconfig
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from catalog.queries import run_query
from flows.settings import STUDIES
from lce_core.study.plan import StudyPlan, compile_study
from lce_core.study.study_file import parse_study
from tasks.tracking.database import artifact_root, database, has_usable_database
from tests.support.forked_commands import Ended, run_forked

ONE_SLOT = "from flows import settings; settings.MAX_CPU_SLOTS = 1"
"""On any machine: a second worker takes 8 s of CPU time to start."""
LCE = [sys.executable, "-c", f"{ONE_SLOT}\nfrom lce.cli import main; main()"]
SMOKE: dict[str, Any] = yaml.safe_load((STUDIES / "smoke.yaml").read_text(encoding="utf-8"))
TINY: dict[str, Any] = SMOKE | {
    "study": "tiny",
    "corpus": {"name": "jsonl_folder", "domain_names": ["code"], "held_out_percent": 30},
    "base_models": [{"name": "toy_llama", "steps": 40}],
}
"""The smoke study over little text: what the whole standard library takes, it shows elsewhere."""
TINY_STEPS = 17
"""Two rows of text, held-out text, a base, a fine-tuned checkpoint and 3 x 4 cells."""
HANG_SECONDS = 1200.0
"""A command that takes longer hangs, also on a machine that is ten times slower than ours."""
SCORES = (
    "SELECT base_model, method, frozen, seed, benchmark, task, metric, eval_length, value, ci_low,"
    " ci_high, num_samples FROM scores ORDER BY ALL"
)


def environment(home: Path, **more: str) -> dict[str, str]:
    """What a command in that home sees: no GPU, and no server but one named in `more`."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PREFECT_", "LCE_"))}
    return {**kept, "LCE_HOME": str(home), "CUDA_VISIBLE_DEVICES": "", **more}


def lce(
    home: Path,
    *arguments: str,
    status: int = 0,
    server: Mapping[str, str] | None = None,
    timeout: float = HANG_SECONDS,
) -> str:
    """Return a command's output, then its errors; a run starts a server or uses the one given."""
    known = {k: v for k, v in (server or {}).items() if k.startswith("PREFECT_API_")}
    ended = run_command(home, *arguments, seconds=timeout, **known)
    assert ended.code == status, ended.out + ended.err
    return ended.out + ended.err


def run_command(home: Path, *arguments: str, seconds: float = HANG_SECONDS, **more: str) -> Ended:
    """Run a command to its end, or kill it after `seconds`; `more` adds to its environment."""
    return run_forked(list(arguments), environment(home, **more), seconds)


def start(home: Path, *arguments: str, **how: Any) -> subprocess.Popen[str]:
    """A command that goes on while a test looks at it; what it prints is read from its `stdout`."""
    settings = {"env": environment(home), "stdout": subprocess.PIPE, "text": True, **how}
    return subprocess.Popen([*LCE, *arguments], stderr=subprocess.STDOUT, **settings)


def ended(process: subprocess.Popen[str], status: int = 0) -> str:
    """Wait for a started command; return what it printed."""
    output = process.communicate(timeout=HANG_SECONDS)[0]
    assert process.returncode == status, output
    return output


NAMED = f"""
import socket, sys
name = sys.argv.pop(1)
socket.gethostname = lambda: name
from tasks import worker_process
worker_process.END_SECONDS = 600.0  # for a machine on which an ordered end takes long
{ONE_SLOT}
from lce.cli import main
main()
"""


def on_host(
    name: str, home: Path, *arguments: str, env: dict[str, str] | None = None
) -> subprocess.Popen[str]:
    """Start `lce worker` with this host name, so that other hosts judge its leases by their age."""
    return subprocess.Popen(
        [sys.executable, "-c", NAMED, name, "worker", *arguments],
        env=env or environment(home),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def library_text(folder: Path) -> None:
    """Writes half a megabyte of the standard library as text files into a new folder."""
    folder.mkdir()
    library = Path(sysconfig.get_path("stdlib"))
    for source in sorted((*library.glob("json/*.py"), *library.glob("email/*.py"))):
        name = f"{source.parent.name}-{source.stem}.txt"
        (folder / name).write_text(source.read_text(encoding="utf-8"), encoding="utf-8")


def compiled(study: Mapping[str, Any], text: Path, **models: Path) -> StudyPlan:
    written = yaml.safe_dump(json.loads(json.dumps(study)))  # JSON repeats what YAML would alias
    return compile_study(parse_study(written, "study.yaml"), {"text": text}, models)


def write_study(folder: Path, study: Mapping[str, Any] = TINY, **changes: Any) -> str:
    path = folder / f"study-{uuid.uuid4().hex[:6]}.yaml"
    path.write_text(yaml.safe_dump({**study, **changes}), encoding="utf-8")
    return str(path)


def computed(output: str) -> int:
    found = re.search(r"([\d,]+) steps computed", output)
    assert found, output
    return int(found[1].replace(",", ""))


def scores(home: Path) -> list[tuple[Any, ...]]:
    return run_query(home / "catalog.duckdb", SCORES)[1]


def results(home: Path) -> str:
    """sha256 of all that a home's catalog says of results: ids, scores, samples, losses, steps.

    Times and hosts are left out, so that it is the same for every way to compute a study.
    """
    digest = hashlib.sha256()
    for asked in (
        SCORES,
        "SELECT * FROM samples ORDER BY ALL",
        "SELECT * FROM token_nll ORDER BY ALL",
        "SELECT kind, artifact FROM artifacts ORDER BY ALL",
        "SELECT checkpoint, step, tokens, loss FROM trainings ORDER BY ALL",
    ):
        digest.update(repr(run_query(home / "catalog.duckdb", asked)).encode())
    return digest.hexdigest()


def copied_home(finished: Path, copy: Path) -> Path:
    """A home to disturb: artifacts are linked, as nothing writes into one; the rest is copied."""
    copy.mkdir()
    for part in finished.iterdir():
        if part.is_file():
            shutil.copy2(part, copy)
        else:
            how = os.link if part.name == "artifacts" else shutil.copy2
            # Another process may write its facts of files at this moment.
            skip = shutil.ignore_patterns(".files.*")
            shutil.copytree(part, copy / part.name, copy_function=how, ignore=skip)
    move_mlflow(finished, copy)
    return copy


def new_home(migrated: Path, folder: Path) -> Path:
    """Return a home without results that has copies of the other home's databases."""
    for part in ("prefect", "mlflow"):
        shutil.copytree(migrated / part, folder / part)
    move_mlflow(migrated, folder)
    return folder


def move_mlflow(before: Path, home: Path) -> None:
    """Let a copied MLflow database keep its files in `home`; lce would make another one.

    Creating the database takes seconds.
    """
    if not has_usable_database(before):
        return
    folders = (artifact_root(before).as_uri(), artifact_root(home).as_uri())
    with contextlib.closing(sqlite3.connect(database(home))) as copied, copied:
        for column in ("experiments SET artifact_location", "runs SET artifact_uri"):
            name = column.split()[-1]
            copied.execute(f"UPDATE {column} = replace({name}, ?, ?)", folders)


def wait_until(condition: Callable[[], object], seconds: float = HANG_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)
