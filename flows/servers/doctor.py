"""`lce doctor`: check that this machine can run studies, and find leftovers of dead processes.

Each check reports what it found and, if something is wrong, the remedy. No check changes anything.
"""

import contextlib
import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import psutil
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from flows.servers.daemons import NAMES, answers, environment, find, marked
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


class Check(NamedTuple):
    """The result of one check."""

    ok: bool
    detail: str
    remedy: str = ""
    """Shown only if the check failed."""


def doctor(home: Path) -> dict[str, Check]:
    """Run all checks; return them by name, in the order in which a user should fix problems."""
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
    results = {}
    for name, check in checks.items():
        try:
            results[name] = check()
        except (LceError, OSError) as error:
            found = explained(error, home)
            remedy = f"Expected {found.expected}; {found.remedy}."
            results[name] = Check(False, f"{found.where}: {found.got}", remedy)
    return results


def _packages() -> Check:
    try:
        wanted = importlib.metadata.requires("lce") or []
    except importlib.metadata.PackageNotFoundError:
        return Check(False, "lce is not installed", "Run `pip install -e .` in the checkout.")
    requirements = [Requirement(line) for line in wanted]
    needed = [r for r in requirements if not r.marker or r.marker.evaluate({"extra": ""})]
    wrong = []
    for one in needed:
        found = _version(one.name)
        if not (found and one.specifier.contains(found, prereleases=True)):
            wrong.append(f"{one.name} is {found or 'missing'}; lce needs {one.specifier}")
    shown = ", ".join(f"{name} {_version(name)}" for name in ("torch", "prefect", "fastapi"))
    remedy = "Run `make install` in the checkout."
    return Check(not wrong, "; ".join(wrong) or shown, remedy)


def _version(name: str) -> str | None:
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(name)
    return None


def _python() -> Check:
    found = platform.python_version()
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        wanted = importlib.metadata.metadata("lce")["Requires-Python"]
        ok = SpecifierSet(wanted).contains(found)
        return Check(ok, f"{found}; lce needs {wanted}", "Use one of these versions.")
    return Check(True, found)


def _folder(home: Path) -> Check:
    existing = next(folder for folder in (home, *home.parents) if folder.exists())
    ok = existing.is_dir() and os.access(existing, os.W_OK | os.X_OK)
    detail = f"{home}{'' if existing == home else ' (to be created)'}"
    return Check(ok, detail, f"Make {existing} writable, or set LCE_HOME to another folder.")


def _file_system(home: Path) -> Check:
    if not home.is_dir() or not os.access(home, os.W_OK | os.X_OK):
        return Check(True, "not checked: LCE_HOME is not a writable folder")
    found = probe(home)
    detail = f"{found.mount.kind}: locks and renames work, clock offset {found.skew:+.1f} s"
    if found.lacks:
        detail = f"{found.mount.kind}: {'; '.join(found.lacks)}"
    remedy = (
        "Mount NFS without nolock and local_lock, and Lustre with flock. Synchronise the clocks of"
        " all hosts with NTP. An object store cannot hold LCE_HOME."
    )
    return Check(not found.lacks, detail, remedy)


def _disk(home: Path) -> Check:
    existing = next(folder for folder in (home, *home.parents) if folder.exists())
    free = shutil.disk_usage(existing).free
    remedy = "Free some space: `lce gc --dry-run` lists artifacts that no study needs."
    return Check(free >= FEW_BYTES, f"{formats.size(free)} free", remedy)


def _catalog(home: Path) -> Check:
    from tasks.mending import damage
    from tasks.questions import answer, catalog_path

    path = catalog_path(home)
    if not path.exists():
        return Check(True, "none yet; the first run builds it")
    if why := damage(home):
        return _database(path, why, "`lce rebuild catalog`")
    try:
        (count,) = json.loads(answer(home, "SELECT count(*) AS n FROM scores", "json"))
    except (LceError, OSError, ValueError) as error:
        return Check(False, str(error), "Run `lce rebuild catalog`.")
    return Check(True, f"{count['n']} scores")


def _mlflow_database(home: Path) -> Check:
    from tasks import tracking

    return _database(tracking.database(home), tracking.damage(home), "`lce rebuild mlflow`")


def _mlflow_server(home: Path) -> Check:
    from tasks.tracking import TeamServer

    server = mlflow_server(home)
    if server is None:
        return Check(True, "none; the store's own database is used")
    with TeamServer(home, server).opened() as client:
        client.search_experiments(max_results=1)
    return Check(True, f"{server} answers")


def _prefect_database(home: Path) -> Check:
    command = "`lce down`, then `lce up`" if find(home, "server") else "`lce up` or `lce run`"
    return _database(prefect_database(home), prefect_damage(home), command)


def _database(path: Path, damage: str | None, command: str) -> Check:
    if damage is None:
        return Check(True, "readable" if path.exists() else "none yet")
    remedy = f"Run {command}: the command renames the file and makes a new one."
    return Check(False, f"{path} is {damage}", remedy)


def _prefect() -> Check:
    """Report which server a `prefect` command in this folder would use."""
    # `removed` has variables of the user's shell.
    options = "-m", "prefect", "config", "view", "--show-sources"
    answer = _run_python(*options, env={**os.environ, **removed})
    remedy = "Run `prefect config view --show-sources`, and `lce doctor` in the checkout's folder."
    if answer.returncode:
        last_lines = "; ".join(answer.stderr.strip().splitlines()[-2:])
        return Check(False, last_lines, remedy)
    joined = answer.stdout.replace("\n", " ")
    _, _, found = joined.partition("PREFECT_API_URL=")
    if not found:
        return Check(True, "no PREFECT_API_URL; `lce run` starts a server")
    value, _, rest = found.partition("(")
    source = rest.partition(")")[0].strip()
    return Check(True, f"PREFECT_API_URL {value.strip()} {source}")


def _run_python(*options: str, **more: Any) -> subprocess.CompletedProcess[str]:
    command, no_input = [sys.executable, *options], subprocess.DEVNULL
    return subprocess.run(command, stdin=no_input, capture_output=True, text=True, **more)


def _plugin(home: Path) -> Check:
    settings = {key: v for key, v in environment(home).items() if key != "PREFECT_PLUGINS_ENABLED"}
    answer = _run_python("-c", _PLUGIN_TEST, env=settings, cwd=_ROOT)
    if answer.returncode == 0:
        return Check(True, f"active in {_ROOT}")
    lines = answer.stderr.strip().splitlines()
    remedy = (
        "Run `pip install -e .` in the checkout. Without the plug-in, give the deployment's full"
        " name: controlled-study/controlled-study."
    )
    return Check(False, lines[-1] if lines else "not active", remedy)


def _environment() -> Check:
    names = ", ".join(ignored(os.environ))
    return Check(True, f"ignored: {names}" if names else "no variable is ignored")


def _services(home: Path) -> Check:
    found = {name: find(home, name) for name in NAMES}
    running = [service for service in found.values() if service]
    if not running:
        return Check(True, "none is running; `lce up` starts them")
    silent = [
        one.name
        for one in running
        if one.url
        and not answers(
            f"{one.url}/health", server_secret(home, "prefect") if one.name == "server" else ""
        )
    ]
    missing = [name for name, service in found.items() if service is None]
    detail = ", ".join(f"{s.name} {s.url or f'(PID {s.pid})'}" for s in running)
    if silent or missing:
        detail += f"; not running or not answering: {', '.join([*silent, *missing])}"
    return Check(not (silent or missing), detail, "Run `lce down`, then `lce up`.")


def _leases(home: Path) -> Check:
    names = [path.stem for path in (home / "leases").glob("*.json")]
    live = [name for name in names if _is_held(home, name)]
    stale = len(names) - len(live)
    steps = {name.split(".")[0] for name in live}  # a step computed in parts has several leases
    # A stale lease is no error: the next run that needs the step takes the lease over.
    return Check(True, f"{len(steps)} steps are being computed, {stale} leases are stale")


def _attempts(home: Path) -> Check:
    found = [path.name for path in home.glob(f"artifacts/*/{ATTEMPT}*")]
    steps = [name.removeprefix(ATTEMPT).split("-")[0] for name in found]
    running = sum(_is_held(home, step) for step in steps)
    dead = len(found) - running
    detail = f"{running} running, {dead} left by processes that died"
    return Check(True, f"{detail}{' (the next run removes them)' if dead else ''}")


def _is_held(home: Path, name: str) -> bool:
    try:
        return is_held(home / "leases", name)
    except OSError:  # the LCE_HOME check reports a store without write access
        return False


def leftovers(home: Path) -> Check:
    """Check that no process outlived the service of `lce up` that had started it."""
    roots = {service.pid for name in NAMES if (service := find(home, name))}
    orphans = []
    for process in marked(home):
        pids = {process.pid}
        with contextlib.suppress(psutil.Error):
            pids |= {parent.pid for parent in process.parents()}
        if not roots & pids:
            orphans.append(process)
    detail = ", ".join(str(process.pid) for process in orphans) or "none"
    return Check(not orphans, detail, "Run `lce down`, which kills them.")


def _accelerators() -> Check:
    from lce_core.devices import count_accelerators

    flash = _version("flash-attn")
    number = count_accelerators()
    if not number:
        return Check(True, "torch finds no GPU, so studies run on the CPU")
    note = f"flash-attn {flash}" if flash else "no flash-attn, so torch's own kernels are used"
    return Check(True, f"{number} CUDA devices; {note}")
