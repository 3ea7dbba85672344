"""Compare recomputed cells with stored results, and find damaged artifacts, for `lce verify`.

Each comparison is written to home/verifications/<cell id>-<time>.json, and changes no artifact.
"""

import hashlib
import itertools
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pydantic import BaseModel, ConfigDict

from lce_core.errors import SpecError
from lce_core.store.artifacts import Store
from lce_core.store.cell_tables import ARRAYS_FILE, SAMPLES_FILE, TOKEN_NLL_FILE
from lce_core.store.identity import ID_DIGITS, fingerprint
from lce_core.store.odd_files import make_folder, read_file
from lce_core.store.records import Record, SealError, write_json

VERIFICATIONS = "verifications"


class _Section(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class Metric(_Section):
    """A metric's stored value (`committed`) and recomputed value (`again`); None where missing."""

    metric: str
    committed: float | None
    again: float | None

    @property
    def difference(self) -> float | None:
        if self.committed is None or self.again is None:
            return None
        return abs(self.committed - self.again)


class Verification(_Section):
    """Comparison of a cell's recomputed result with the stored one, or why recomputing failed."""

    cell: str
    fingerprint: str
    verified_at: str
    """UTC, ISO 8601."""
    committed_at: str
    environment: str
    """Catalog id of the recomputation's environment (`Record.environment`); empty if it failed."""
    same_environment: bool
    tolerance: float
    """Maximum relative difference."""
    metrics: list[Metric] = []
    num_samples: int = 0
    """Scored prompts, of the result with more."""
    num_same_samples: int = 0
    """Prompts whose samples are equal in every field."""
    largest_sample_difference: float | None = None
    """Absolute difference of a prompt's two scores; None if no prompt has both."""
    largest_nll_difference: float | None = None
    """Absolute difference of two mean NLLs of a bin, in nats per token; None if no bin has both."""
    identical: bool = False
    """True if all scores, samples, losses and arrays are equal, without any tolerance."""
    agrees: bool = False
    """True if every metric, every sample's score and every bin's NLL is within the tolerance."""
    error: str | None = None
    """Why the cell could not be recomputed."""


def sampled(steps: Sequence[str], sample: str, seed: int) -> list[str]:
    """Return a random sample of fingerprints ("5%", rounded up, or a number), in their order.

    Hashes of seed and fingerprint decide, so that a grown study keeps mostly the same cells.
    """
    number = re.fullmatch(r"(\d+(?:\.\d+)?)(%?)", sample.strip())
    size = float(number[1]) if number else 0.0
    if number and number[2] and 0 < size <= 100:
        count = math.ceil(len(steps) * size / 100)
    elif number and not number[2] and size >= 1 and size.is_integer():
        count = min(int(size), len(steps))
    else:
        raise SpecError(
            "--sample",
            repr(sample),
            "a percentage above 0 and up to 100, or a number of cells from 1",
            "write, for example, 5% or 20",
        )

    def draw(step: str) -> str:
        return hashlib.sha256(f"{seed} {step}".encode()).hexdigest()

    drawn = set(sorted(steps, key=draw)[:count])
    return [step for step in steps if step in drawn]


def compare(
    committed: tuple[Path, Record], again: tuple[Path, Record], tolerance: float
) -> Verification:
    """Compare two results (folder, record) of one cell by a relative tolerance."""
    (old_folder, old), (new_folder, new) = committed, again
    before, after = _scores(old), _scores(new)
    metrics = [
        Metric(metric=name, committed=before.get(name), again=after.get(name))
        for name in {**before, **after}
    ]
    samples = _pairs(old_folder, new_folder, SAMPLES_FILE)
    bins = _pairs(old_folder, new_folder, TOKEN_NLL_FILE)
    scores = [(a.get("score"), b.get("score")) for a, b in samples]
    losses = [(a.get("nll"), b.get("nll")) for a, b in bins]
    arrays = [
        one.files[ARRAYS_FILE].sha256 if ARRAYS_FILE in one.files else None for one in (old, new)
    ]
    numbers = [*((one.committed, one.again) for one in metrics), *scores, *losses]
    same = [_same(a, b) for a, b in samples]
    return Verification(
        **_about(old, tolerance),
        environment=fingerprint(new.environment)[:ID_DIGITS],
        same_environment=old.environment == new.environment,
        metrics=metrics,
        num_samples=len(samples),
        num_same_samples=sum(same),
        largest_sample_difference=_largest(scores),
        largest_nll_difference=_largest(losses),
        identical=before == after
        and all(same)
        and all(_same(a, b) for a, b in bins)
        and arrays[0] == arrays[1],
        agrees=all(_agree(a, b, tolerance) for a, b in numbers),
    )


def not_computed(record: Record, error: str, tolerance: float) -> Verification:
    about = _about(record, tolerance)
    return Verification(**about, environment="", same_environment=False, error=error)


def keep(home: Path, verification: Verification) -> Path:
    folder = make_folder(home / VERIFICATIONS)
    time = re.sub(r"\D", "", verification.verified_at.partition("+")[0])
    file = folder / f"{verification.cell}-{time}.json"
    write_json(file, verification.model_dump(mode="json"))
    return file


def kept(home: Path) -> Iterator[Verification]:
    for file in sorted((home / VERIFICATIONS).glob("*.json")):
        try:
            yield Verification.model_validate_json(read_file(file))
        except (OSError, ValueError):
            continue


def _about(record: Record, tolerance: float) -> dict[str, Any]:
    return {
        "cell": record.fingerprint[:ID_DIGITS],
        "fingerprint": record.fingerprint,
        "verified_at": datetime.now(UTC).isoformat(timespec="microseconds"),
        "committed_at": record.finished_at,
        "tolerance": tolerance,
    }


def _scores(record: Record) -> dict[str, float]:
    return {score["metric"]: score["value"] for score in record.result["scores"]}


def _pairs(old: Path, new: Path, name: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Return pairs of rows; missing rows of the shorter file are empty."""
    tables = (pq.read_table(folder / name).to_pylist() for folder in (old, new))
    return list(itertools.zip_longest(*tables, fillvalue={}))


def _same(old: dict[str, Any], new: dict[str, Any]) -> bool:
    # Count two NaN values as equal.
    return old.keys() == new.keys() and all(
        old[name] == new[name] or (old[name] != old[name] and new[name] != new[name])
        for name in old
    )


def _agree(old: float | None, new: float | None, tolerance: float) -> bool:
    if old is None or new is None:
        return old is new
    if math.isnan(old) or math.isnan(new):
        return math.isnan(old) and math.isnan(new)
    return math.isclose(old, new, rel_tol=tolerance, abs_tol=0.0)


def _largest(pairs: Sequence[tuple[float | None, float | None]]) -> float | None:
    differences = (abs(a - b) for a, b in pairs if a is not None and b is not None)
    return max((one for one in differences if not math.isnan(one)), default=None)


CHANGED_CONTENT = "the content of a file is not what its record says"


@dataclass
class Reread:
    """Numbers of artifacts and bytes read, and the damage by artifact folder."""

    num_artifacts: int = 0
    num_bytes: int = 0
    damage: dict[Path, str] = field(default_factory=dict)


def what_is_wrong(folder: Path, digest: Callable[[Path], str] | None = None) -> str | None:
    """Return an artifact's first fault, with `digest` as in `Record.fault_in`, or None."""
    try:
        record = Record.read(folder)
    except SealError:
        return "its record.json was changed after it was written"
    except (OSError, ValueError):
        return "its record.json cannot be read"
    return record.fault_in(folder, digest)


def reread(store: Store, report: Callable[[int, int], None]) -> Reread:
    """Read every byte of every artifact, and compare digests with the records.

    Planning trusts cached digests of unchanged files (`lce_core.store.file_facts`), but a bit flip
    on the disk changes neither times nor size. The cache keeps new digests, even after Ctrl-C.
    `report` gets (bytes read, total).
    """
    found = Reread()
    folders = [
        folder for folder in sorted((store.home / "artifacts").glob("*/[!.]*")) if folder.is_dir()
    ]
    total = sum(map(_size, folders))

    def digest(path: Path) -> str:
        sha256 = store.file_facts.sha256(path, fresh=True)
        found.num_bytes += path.stat().st_size
        report(found.num_bytes, total)
        return sha256

    try:
        for folder in folders:
            wrong = what_is_wrong(folder, digest)
            if not folder.is_dir():
                continue  # a concurrent run has moved the folder away
            found.num_artifacts += 1
            if wrong:
                found.damage[folder] = wrong
    finally:
        store.file_facts.save()
    return found


def _size(folder: Path) -> int:
    record = Record.find(folder)
    return sum(entry.bytes for entry in record.files_in(folder).values()) if record else 0
