"""Files of the form in which SlimPajama lies on the hub: `text`, and the domain in `meta`."""

import gzip
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lce_core.corpora import streamed
from lce_core.data import shards

DOMAINS = ("RedPajamaCommonCrawl", "RedPajamaBook", "RedPajamaGithub")
CORPUS: Mapping[str, Any] = {
    "name": "streamed",
    "domain_field": "meta.redpajama_set_name",
    "domain_names": list(DOMAINS),
    "held_out_percent": 10,
}
WORDS = ("key", "table", "row", "model", "of", "the", "caf\u00e9", "\U0001f600")


def rows(number: int, seed: int, words: int = 12) -> list[dict[str, Any]]:
    """Many short web pages, few long books, code in between; lengths vary about a mean."""
    rng = np.random.default_rng(seed)
    domains = rng.choice(3, size=number, p=[0.8, 0.05, 0.15])
    sizes = 1 + rng.poisson(words * np.array([1, 40, 3])[domains])
    return [
        {
            "text": " ".join(rng.choice(WORDS, size=size)),
            "meta": {"redpajama_set_name": DOMAINS[domain]},
        }
        for domain, size in zip(domains, sizes, strict=True)
    ]


def write(file: Path, entries: Sequence[Mapping[str, Any]]) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    if file.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(list(entries)), file, row_group_size=50)
        return file
    lines = "".join(json.dumps(entry) + "\n" for entry in entries).encode()
    if file.suffix == ".gz":
        lines = gzip.compress(lines)
    if file.suffix == ".zst":
        lines = pa.compress(lines, codec="zstd", asbytes=True)
    file.write_bytes(lines)
    return file


def write_all(folder: Path, number: int = 120) -> list[dict[str, Any]]:
    """Two parquet files and one of JSON lines, `number` rows each; returns all in path order."""
    parts = [rows(number, seed) for seed in range(3)]
    for name, entries in zip(("a/0.parquet", "a/1.parquet", "b.jsonl"), parts, strict=True):
        write(folder / name, entries)
    return [entry for part in parts for entry in part]


def small_shards(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """360 documents in three files, read in small blocks and sealed in small segments."""
    monkeypatch.setattr(streamed, "BLOCK_ROWS", 13)
    monkeypatch.setattr(shards, "SEGMENT_TOKENS", 8000)
    write_all(folder)
    return folder
