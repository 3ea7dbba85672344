"""Segments of token shards: the unit that is written and checked as a whole.

A segment is a folder with one file of ids for each domain that occurs in it (uint16 or uint32), the
list of its documents, and the position in the source at which the next segment starts. The first
segment of a corpus in which domains 0 and 2 occur has the files

    00000/0.bin  00000/2.bin  00000/documents.parquet  00000/segment.json
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from lce_core.corpora import Place
from lce_core.data.tokenised import hash_key
from lce_core.errors import StoreError
from lce_core.store.odd_files import read_mapping, remove
from lce_core.store.records import sync, write_json

INDEX = "documents.parquet"
FACTS = "segment.json"
_WRITING = ".writing"


@dataclass(frozen=True, eq=False)
class TokenBlock:
    """Tokens of consecutive documents: a tokenised `lce_core.corpora.Block`."""

    ids: NDArray[Any]
    """Ids of all documents, concatenated (tokens,)."""
    lengths: NDArray[np.int64]
    """Tokens of each document (documents,)."""
    domains: NDArray[np.int64]
    """Index of each document's domain (documents,)."""
    held_out: NDArray[np.bool_]
    names: list[str]
    text_keys: NDArray[np.uint64]
    """`hash_key` of each document's text (documents,)."""
    end: Place
    """Position in the source at which the next block starts."""


@dataclass(eq=False)
class Segment:
    """Consecutive blocks in memory, which `seal` writes to one folder."""

    blocks: list[TokenBlock] = field(default_factory=list)
    tokens: int = 0

    def add(self, block: TokenBlock) -> None:
        self.blocks.append(block)
        self.tokens += block.ids.size


def seal(segment: Segment, domains: tuple[str, ...], progress: Path, number: int) -> dict[str, Any]:
    """Write a segment to a temporary folder in `progress`; rename it when complete."""
    aside = progress / _WRITING
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir()
    lengths, of_domains, held_out, text_keys = (
        np.concatenate([getattr(block, name) for block in segment.blocks])
        for name in ("lengths", "domains", "held_out", "text_keys")
    )
    names = [name for block in segment.blocks for name in block.names]
    digests, sizes = {}, {}
    for domain in np.unique(of_domains[lengths > 0]).tolist():
        file, digest = aside / f"{domain}.bin", hashlib.sha256()
        with file.open("wb") as out:
            for block in segment.blocks:
                part = block.ids[np.repeat(block.domains == domain, block.lengths)].tobytes()
                digest.update(part)
                out.write(part)
        digests[file.name], sizes[str(domain)] = digest.hexdigest(), file.stat().st_size
    columns = {
        "name": pa.array(names, pa.string()),
        "domain": pa.DictionaryArray.from_arrays(pa.array(of_domains, pa.int16()), list(domains)),
        "tokens": pa.array(lengths),
        "held_out": pa.array(held_out),
        "key": pa.array([hash_key(name) for name in names], pa.uint64()),
        "text": pa.array(text_keys),
    }
    pq.write_table(pa.table(columns), aside / INDEX)
    digests[INDEX] = hashlib.sha256((aside / INDEX).read_bytes()).hexdigest()
    facts = {
        "end": asdict(segment.blocks[-1].end),
        "documents": len(names),
        "tokens": segment.tokens,
        "bytes": sizes,
        "sha256": digests,
    }
    for file in aside.iterdir():
        sync(file)
    write_json(aside / FACTS, facts)
    sync(aside)
    aside.rename(progress / segment_name(number))
    sync(progress)
    return facts


def sealed_segments(progress: Path, dtype: np.dtype[Any]) -> list[dict[str, Any]]:
    """Return the content of segment.json for each complete segment of an interrupted run.

    The first damaged segment and all later ones are deleted, because the run continues where the
    last remaining segment ends.
    """
    found: list[dict[str, Any]] = []
    while (folder := progress / segment_name(len(found))).is_dir():
        try:
            facts = read_mapping(folder / FACTS)
            check_sizes(folder, facts, dtype)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, StoreError):
            break
        found.append(facts)
    for folder in progress.iterdir():
        if folder.name not in {segment_name(number) for number in range(len(found))}:
            remove(folder)
    return found


def check_sizes(folder: Path, facts: Mapping[str, Any], dtype: np.dtype[Any]) -> None:
    if sum(facts["bytes"].values()) != facts["tokens"] * dtype.itemsize:
        got = f"{sum(facts['bytes'].values())} bytes for {facts['tokens']} tokens of {dtype.name}"
        raise damaged(folder, got)
    for domain, expected in facts["bytes"].items():
        file = folder / f"{domain}.bin"
        size = file.stat().st_size if file.is_file() else None
        if size != expected:
            got = "no such file" if size is None else f"{size} bytes instead of {expected}"
            raise damaged(file, got)


def damaged(file: Path, got: str) -> StoreError:
    return StoreError(
        file,
        got,
        "a token shard as the manifest describes it",
        "run the study again, which tokenises what is missing",
    )


def segment_name(number: int) -> str:
    return f"{number:05d}"
