"""`lce doctor`: check that this machine can run studies, and find leftovers of dead processes.

Each check reports what it found and, if something is wrong, the remedy. No check changes anything.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psutil
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from flows.servers.daemons import NAMES, Service, answers, environment, find, marked
from flows.servers.guarded_prefect import prefect_damage, prefect_database
from flows.settings import mlflow_server
from lce_core import formats
from lce_core.access import server_secret
from lce_core.environment import ignored, removed
from lce_core.errors import LceError
from lce_core.store.artifacts import ATTEMPT
from lce_core.store.failures import explained
from lce_core.store.file_system import probe
from lce_core.store.lease import is_held

FEW_BYTES = 5 << 30
"""The toy study needs about 1 GiB."""

_ROOT = Path(__file__).parents[2]
# Importing Prefect loads the plug-in, so import Prefect first.
_PLUGIN_TEST = "import prefect, flows.prefect_plugin as p; raise SystemExit(not p.is_active())"


@dataclass(frozen=True)
class Check:
    """The result of one check."""

    name: str
    ok: bool
    detail: str
    remedy: str = ""
    """Shown only if the check failed."""


def doctor(home: Path) -> list[Check]:
    """Run all checks, and return them in the order in which a user should fix problems."""
    home = home.absolute()
    checks: dict[str, Callable[[], Check]] = {
        "python": _python,
        "packages": _packages,
        "LCE_HOME": partial(_folder, home),
        "file system": partial(_file_system, home),
        "disk": partial(_disk, home),
        "catalog": partial(_catalog, home),
        "MLflow database": partial(_mlflow_database, home),
        "MLflow server": partial(_mlflow_server, home),
        "Prefect database": partial(_prefect_database, home),
        "prefect settings": _prefect,
        "prefect plug-in": partial(_plugin, home),
        "environment": _environment,
        "services": partial(_services, home),
        "leases": partial(_leases, home),
        "attempts": partial(_attempts, home),
        "orphan processes": partial(leftovers, home),
        "accelerators": _accelerators,
    }
    return [_run_check(name, check, home) for name, check in checks.items()]


def _run_check(name: str, check: Callable[[], Check], home: Path) -> Check:
    """Run a check; an LceError or OSError counts as failed."""
    try:
        return check()
    except (LceError, OSError) as error:
        found = explained(error, home)
        remedy = f"Expected {found.expected}; {found.remedy}."
        return Check(name, False, f"{found.where}: {found.got}", remedy)


def _packages() -> Check:
    try:
        wanted = importlib.metadata.requires("lce") or []
    except importlib.metadata.PackageNotFoundError:
        return Check(
            "packages", False, "lce is not installed", "Run `pip install -e .` in the checkout."
        )
    requirements = [Requirement(line) for line in wanted]
    needed = [r for r in requirements if not r.marker or r.marker.evaluate({"extra": ""})]
    wrong = [text for requirement in needed if (text := _violation(requirement))]
    shown = ", ".join(f"{name} {_version(name)}" for name in ("torch", "prefect", "fastapi"))
    remedy = "Run `make install` in the checkout."
    return Check("packages", not wrong, "; ".join(wrong) or shown, remedy)


def _version(name: str) -> str | None:
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(name)
    return None


def _violation(requirement: Requirement) -> str:
    found = _version(requirement.name)
    if found and requirement.specifier.contains(found, prereleases=True):
        return ""
    return f"{requirement.name} is {found or 'missing'}; lce needs {requirement.specifier}"


def _python() -> Check:
    found = platform.python_version()
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        wanted = importlib.metadata.metadata("lce")["Requires-Python"]
        ok = SpecifierSet(wanted).contains(found)
        return Check("python", ok, f"{found}; lce needs {wanted}", "Use one of these versions.")
    return Check("python", True, found)


def _folder(home: Path) -> Check:
    existing = next(folder for folder in (home, *home.parents) if folder.exists())
    ok = existing.is_dir() and os.access(existing, os.W_OK | os.X_OK)
    detail = f"{home}{'' if existing == home else ' (to be created)'}"
    return Check(
        "LCE_HOME", ok, detail, f"Make {existing} writable, or set LCE_HOME to another folder."
    )


def _file_system(home: Path) -> Check:
    if not home.is_dir() or not os.access(home, os.W_OK | os.X_OK):
        return Check("file system", True, "not checked: LCE_HOME is not a writable folder")
    found = probe(home)
    detail = f"{found.mount.kind}: locks and renames work, clock offset {found.skew:+.1f} s"
    if found.lacks:
        detail = f"{found.mount.kind}: {'; '.join(found.lacks)}"
    remedy = (
        "Mount NFS without nolock and local_lock, and Lustre with flock. Synchronise the clocks of"
        " all hosts with NTP. An object store cannot hold LCE_HOME."
    )
    return Check("file system", not found.lacks, detail, remedy)


def _disk(home: Path) -> Check:
    existing = next(folder for folder in (home, *home.parents) if folder.exists())
    free = shutil.disk_usage(existing).free
    remedy = "Free some space: `lce gc --dry-run` lists artifacts that no study needs."
    return Check("disk", free >= FEW_BYTES, f"{formats.size(free)} free", remedy)


def _catalog(home: Path) -> Check:
    from tasks.mending import damage
    from tasks.questions import answer, catalog_path

    path = catalog_path(home)
    if not path.exists():
        return Check("catalog", True, "none yet; the first run builds it")
    if why := damage(home):
        return _unusable("catalog", path, why, "`lce rebuild catalog`")
    try:
        (count,) = json.loads(answer(home, "SELECT count(*) AS n FROM scores", "json"))
    except (LceError, OSError, ValueError) as error:
        return Check("catalog", False, str(error), "Run `lce rebuild catalog`.")
    return Check("catalog", True, f"{count['n']} scores")


def _mlflow_database(home: Path) -> Check:
    from tasks import tracking

    if why := tracking.damage(home):
        return _unusable("MLflow database", tracking.database(home), why, "`lce rebuild mlflow`")
    exists = tracking.database(home).exists()
    return Check("MLflow database", True, "readable" if exists else "none yet")


def _mlflow_server(home: Path) -> Check:
    from tasks.tracking import TeamServer

    server = mlflow_server(home)
    if server is None:
        return Check("MLflow server", True, "none; the store's own database is used")
    with TeamServer(home, server).opened() as client:
        client.search_experiments(max_results=1)
    return Check("MLflow server", True, f"{server} answers")


def _prefect_database(home: Path) -> Check:
    path = prefect_database(home)
    if why := prefect_damage(home):
        command = "`lce down`, then `lce up`" if find(home, "server") else "`lce up` or `lce run`"
        return _unusable("Prefect database", path, why, command)
    return Check("Prefect database", True, "readable" if path.exists() else "none yet")


def _unusable(name: str, path: Path, why: str, command: str) -> Check:
    remedy = f"Run {command}: the command renames the file and makes a new one."
    return Check(name, False, f"{path} is {why}", remedy)


def _prefect() -> Check:
    """Report which server a `prefect` command in this folder would use."""
    command = [sys.executable, "-m", "prefect", "config", "view", "--show-sources"]
    answer = subprocess.run(
        command,
        env={**os.environ, **removed},  # those of the user's shell
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    remedy = "Run `prefect config view --show-sources`, and `lce doctor` in the checkout's folder."
    if answer.returncode:
        last_lines = "; ".join(answer.stderr.strip().splitlines()[-2:])
        return Check("prefect settings", False, last_lines, remedy)
    joined = answer.stdout.replace("\n", " ")
    _, _, found = joined.partition("PREFECT_API_URL=")
    if not found:
        return Check("prefect settings", True, "no PREFECT_API_URL; `lce run` starts a server")
    value, _, rest = found.partition("(")
    source = rest.partition(")")[0].strip()
    return Check("prefect settings", True, f"PREFECT_API_URL {value.strip()} {source}")


def _plugin(home: Path) -> Check:
    settings = {key: v for key, v in environment(home).items() if key != "PREFECT_PLUGINS_ENABLED"}
    answer = subprocess.run(
        [sys.executable, "-c", _PLUGIN_TEST],
        cwd=_ROOT,
        env=settings,
        capture_output=True,
        text=True,
    )
    if answer.returncode == 0:
        return Check("prefect plug-in", True, f"active in {_ROOT}")
    lines = answer.stderr.strip().splitlines()
    remedy = (
        "Run `pip install -e .` in the checkout. Without the plug-in, give the deployment's full"
        " name: controlled-study/controlled-study."
    )
    return Check("prefect plug-in", False, lines[-1] if lines else "not active", remedy)


def _environment() -> Check:
    names = ", ".join(ignored(os.environ))
    return Check("environment", True, f"ignored: {names}" if names else "no variable is ignored")


def _services(home: Path) -> Check:
    found = {name: find(home, name) for name in NAMES}
    running = [service for service in found.values() if service]
    if not running:
        return Check("services", True, "none is running; `lce up` starts them")
    silent = [service.name for service in running if service.url and not _answers(home, service)]
    missing = [name for name, service in found.items() if service is None]
    detail = ", ".join(f"{s.name} {s.url or f'(PID {s.pid})'}" for s in running)
    if silent or missing:
        detail += f"; not running or not answering: {', '.join([*silent, *missing])}"
    return Check("services", not (silent or missing), detail, "Run `lce down`, then `lce up`.")


def _answers(home: Path, service: Service) -> bool:
    secret = server_secret(home, "prefect") if service.name == "server" else ""
    return answers(f"{service.url}/health", secret)


def _leases(home: Path) -> Check:
    names = [path.stem for path in (home / "leases").glob("*.json")]
    live = [name for name in names if _is_held(home, name)]
    stale = len(names) - len(live)
    steps = {name.split(".")[0] for name in live}  # a step computed in parts has several leases
    # A stale lease is no error: the next run that needs the step takes the lease over.
    return Check("leases", True, f"{len(steps)} steps are being computed, {stale} leases are stale")


def _attempts(home: Path) -> Check:
    found = [path.name for path in home.glob(f"artifacts/*/{ATTEMPT}*")]
    steps = [name.removeprefix(ATTEMPT).split("-")[0] for name in found]
    running = sum(_is_held(home, step) for step in steps)
    dead = len(found) - running
    detail = f"{running} running, {dead} left by processes that died"
    return Check("attempts", True, f"{detail}{' (the next run removes them)' if dead else ''}")


def _is_held(home: Path, name: str) -> bool:
    try:
        return is_held(home / "leases", name)
    except OSError:  # the LCE_HOME check reports a store without write access
        return False


def leftovers(home: Path) -> Check:
    """Check that no process outlived the service of `lce up` that had started it."""
    roots = {service.pid for name in NAMES if (service := find(home, name))}
    orphans = [process for process in marked(home) if not roots & _pids_with_ancestors(process)]
    detail = ", ".join(str(process.pid) for process in orphans) or "none"
    return Check("orphan processes", not orphans, detail, "Run `lce down`, which kills them.")


def _pids_with_ancestors(process: psutil.Process) -> set[int]:
    with contextlib.suppress(psutil.Error):
        return {process.pid, *(parent.pid for parent in process.parents())}
    return {process.pid}


def _accelerators() -> Check:
    from lce_core.devices import count_accelerators

    flash = _version("flash-attn")
    number = count_accelerators()
    if not number:
        return Check("accelerators", True, "torch finds no GPU, so studies run on the CPU")
    note = f"flash-attn {flash}" if flash else "no flash-attn, so torch's own kernels are used"
    return Check("accelerators", True, f"{number} CUDA devices; {note}")
