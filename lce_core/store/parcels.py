"""Write and read result parcels: tar files that bring artifacts from one store into another.

A parcel NAME.results-0001.tar starts with the member `parcel.json`, which names the study and the
digest of its plan. Then follow members `artifacts/<kind>/<folder>/<file>` and
`failures/<id>.json`, which have the form of the store's own files; trainings may lack weights.
Members below `logs/` are ignored. A parcel may come from an untrusted machine or be cut short, so
`extract` checks every name before it writes a file.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import re
import shutil
import tarfile
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from lzma import LZMAError
from pathlib import Path

from lce_core.errors import DataError
from lce_core.store.artifacts import Store
from lce_core.store.identity import ID_DIGITS, sha256_file
from lce_core.store.odd_files import json_object, open_file
from lce_core.store.records import RECORD, WEIGHTS, Record
from lce_core.store.steps import Step
from lce_core.store.verification import what_is_wrong

MANIFEST = "parcel.json"
FORMAT = 1
_MAX_MANIFEST_BYTES = 1 << 20
_ID = f"[0-9a-f]{{{ID_DIGITS}}}"
# A leading dot would give an artifact the name of an unfinished attempt.
_ARTIFACT = re.compile(rf"artifacts/[a-z][a-z_]*/[^./][^/]*-{_ID}/.+")
_FAILURE = re.compile(rf"failures/{_ID}\.json")
_IGNORED = "logs/"
_STUDY = re.compile(r"[a-z0-9][a-z0-9-]*")


@dataclass(frozen=True)
class Parcel:
    """A result parcel, as its manifest describes it."""

    path: Path
    study: str
    plan: str
    """`plan_digest` of the plan."""

    @property
    def stem(self) -> str:
        return self.path.name.partition(".tar")[0]

    @classmethod
    def open(cls, path: Path) -> Parcel:
        with _reading(path) as tar:
            first = tar.next()
            if first is None or first.name != MANIFEST or not first.isreg():
                raise _refusal(path, f"a first member {first.name if first else '(none)'!r}")
            file = tar.extractfile(first)
            assert file is not None, "regular files have content"
            written = file.read(_MAX_MANIFEST_BYTES)
        try:
            content = json_object(written)
            if content["format"] != FORMAT:
                raise _refusal(path, f"parcels of format {content['format']!r}")
            study, plan = str(content["study"]), str(content["plan"])
        except (ValueError, LookupError):
            raise _refusal(path, f"a {MANIFEST} without format, study and plan") from None
        if not _STUDY.fullmatch(study):  # it becomes part of a path
            raise _refusal(path, f"a {MANIFEST} with the study {study!r}")
        return cls(path, study, plan)

    def step_ids(self) -> set[str]:
        with _reading(self.path) as tar:
            names = [name for _, name in _members(self.path, tar)]
        return {name.split("/")[2][-ID_DIGITS:] for name in names if _ARTIFACT.fullmatch(name)}

    def extract(self, folder: Path) -> None:
        """Write the parcel's files below the new `folder`; refuse irregular or repeated members."""
        with _reading(self.path) as tar:
            for member, name in _members(self.path, tar):
                if name.startswith(_IGNORED):
                    continue
                place = folder / name
                try:
                    place.parent.mkdir(parents=True, exist_ok=True)
                    written = place.open("xb")
                except (FileExistsError, NotADirectoryError):
                    raise _refusal(self.path, f"{name!r}, whose path occurs twice") from None
                except OSError as error:
                    if error.errno != errno.ENAMETOOLONG:
                        raise
                    raise _refusal(self.path, f"{name!r}, too long a path for this disk") from None
                content = tar.extractfile(member)
                assert content is not None, "regular files have content"
                with written:
                    shutil.copyfileobj(content, written, 1 << 20)


class ResultParcels:
    """A folder's parcels of a plan's results: all but the last are full and stay unchanged."""

    def __init__(
        self,
        study: str,
        plan: str,
        steps: Sequence[Step],
        store: Store,
        out: Path,
        part_bytes: float,
        *,
        kept: Collection[str],
        weights: bool,
    ) -> None:
        """Results of the kinds `kept` are left out."""
        self._study, self._plan, self._store, self._out = study, plan, store, out
        self._steps = {step.id: step for step in steps}
        self._bytes, self._kept, self._weights = part_bytes, kept, weights
        self._full: set[str] = set()
        self._number = 1
        out.mkdir(parents=True, exist_ok=True)
        for parcel in sorted(out.glob(f"{study}.results-*.tar.gz"))[:-1]:
            with tarfile.open(parcel) as tar:
                self._full.update(Path(name).parent.name for name in tar.getnames())
            self._number += 1

    def write(self) -> None:
        listing, found = self._store.listing(), []
        for step in self._steps.values():
            folder = listing.find(step.fingerprint, step.kind)
            if folder and folder.name not in self._full and step.kind not in self._kept:
                found.append((Record.read(folder).finished_at, folder))
        notes = sorted((self._store.home / "failures").glob("*.json"))
        notes = [note for note in notes if note.stem in self._steps]
        part: list[Path] = []
        size = 0
        for _, folder in sorted(found):
            own = sum(file.stat().st_size for file in self._files(folder))
            if part and size + own > self._bytes:
                self._write(part)
                self._full.update(one.name for one in part)
                self._number += 1
                part, size = [], 0
            part.append(folder)
            size += own
        if part or notes:
            self._write(part, notes)

    def _files(self, folder: Path) -> list[Path]:
        found = (path for path in sorted(folder.rglob("*")) if path.is_file())
        if self._weights:
            return list(found)
        return [path for path in found if path.relative_to(folder).parts[0] != WEIGHTS]

    def _write(self, artifacts: list[Path], notes: Sequence[Path] = ()) -> None:
        about = json.dumps({"format": FORMAT, "study": self._study, "plan": self._plan}).encode()
        final = self._out / f"{self._study}.results-{self._number:04d}.tar.gz"
        unfinished = final.with_suffix(".unfinished")
        with tarfile.open(unfinished, "w:gz", compresslevel=3) as tar:
            _add(tar, MANIFEST, about)
            for path in (file for one in artifacts for file in self._files(one)):
                tar.add(path, path.relative_to(self._store.home).as_posix(), recursive=False)
            for note in notes:
                with contextlib.suppress(FileNotFoundError):  # a retry has succeeded meanwhile
                    _add(tar, f"failures/{note.name}", note.read_bytes())
        unfinished.rename(final)


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    tar.addfile(entry, BytesIO(content))


def plan_digest(step_ids: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(sorted(step_ids)).encode()).hexdigest()


def fault_of(folder: Path, kind: str) -> str | None:
    """Return why an extracted artifact must not be imported, or None; reads every byte."""
    if wrong := what_is_wrong(folder, sha256_file):
        return wrong
    record = Record.read(folder)
    if (kind, folder.name) != (record.kind, f"{record.name}-{record.fingerprint[:ID_DIGITS]}"):
        return f"its record is that of {record.kind} {record.name}-{record.fingerprint[:ID_DIGITS]}"
    present = {one.relative_to(folder).as_posix() for one in folder.rglob("*") if one.is_file()}
    if unknown := sorted(present - {RECORD, *record.files_in(folder)}):
        return f"its record does not list {unknown[0]}"
    return None


def differing_results(here: Record, other: Record) -> Mapping[str, tuple[object, object]]:
    """Return (here, other) by name of result, where two computations of a step differ."""
    mine, others = _results(here), _results(other)
    names = [name for name in {**mine, **others} if mine.get(name) != others.get(name)]
    return {name: (mine.get(name), others.get(name)) for name in names}


def _results(record: Record) -> Mapping[str, object]:
    if "scores" in record.result:
        return {score["metric"]: score["value"] for score in record.result["scores"]}
    return {"loss": record.result["loss"]} if "loss" in record.result else record.result


def _refusal(path: Path, got: str) -> DataError:
    return DataError(
        f"parcel {path.name}",
        got,
        "a complete result parcel, with regular files in artifacts/, failures/ and logs/",
        "copy the parcel again from the machine that wrote it; nothing of it was imported",
    )


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[tarfile.TarFile]:
    try:
        with open_file(path) as file, tarfile.open(fileobj=file, mode="r:*") as tar:
            yield tar
    except (tarfile.TarError, EOFError, zlib.error, LZMAError) as error:
        why = str(error).partition("\n")[0]
        raise _refusal(path, f"a tar file that ends early or is damaged ({why})") from None
    except OSError as error:
        # gzip and bz2 report damage as an OSError without a number; others are errors of the disk.
        if error.errno is not None and str(error.filename) != str(path):
            raise
        raise _refusal(path, f"a file that cannot be read ({error.strerror or error})") from None


def _members(path: Path, tar: tarfile.TarFile) -> Iterator[tuple[tarfile.TarInfo, str]]:
    for member in tar:
        name = member.name
        if name == MANIFEST:
            continue
        if not member.isreg():
            raise _refusal(path, f"{name!r}, which is not a regular file")
        is_known = name.startswith(_IGNORED) or any(
            pattern.fullmatch(name) for pattern in (_ARTIFACT, _FAILURE)
        )
        if not is_known or {"", ".", ".."} & set(name.split("/")) or "\0" in name:
            raise _refusal(path, f"{name!r}, a path outside the folders of a parcel")
        yield member, name
    # tarfile takes a missing or damaged header for the end, so look for the mark of the end.
    assert tar.fileobj is not None
    tar.fileobj.seek(tar.offset)
    if tar.fileobj.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
        raise _refusal(path, "a tar file that ends early or is damaged (no mark of its end)")
