"""Write a corpus as token shards, from which training rows and held-out text are cut.

Text is read in the source's order, tokenised by several threads, and written in the source's order,
so that the files do not depend on the number of threads. Only one segment and a few blocks of text
are in memory.

A segment is the unit that is written and checked as a whole; a killed run continues after the last
complete one. It is a folder with one file of ids for each domain that occurs in it (uint16 or
uint32), the list of its documents, and the position in the source at which the next segment starts.
The output folder has a folder for each segment and a manifest. If domains 0 and 2 occur in the
first segment:

    00000/0.bin  00000/2.bin  00000/documents.parquet  00000/segment.json  00001/...  manifest.json
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import os
import shutil
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from lce_core.corpora import Block, Place, StreamedCorpus
from lce_core.data.manifest import write_manifest
from lce_core.data.tokenised import (
    checked,
    domain_indices,
    encoded,
    hash_key,
    separator_of,
    token_dtype,
)
from lce_core.errors import DataError, StoreError
from lce_core.progress import Report
from lce_core.store.odd_files import read_mapping, remove
from lce_core.store.records import sync, write_json

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

INDEX = "documents.parquet"
FACTS = "segment.json"
_SECONDS = "seconds.json"
"""File of a segment that stays in `progress`: the output does not depend on time."""
_WRITING = ".writing"
SEGMENT_TOKENS = 1 << 25
"""A segment is written when it has at least this many tokens: 64 MiB of uint16, about a minute of
work for one core. An interrupted run repeats the work of at most one segment."""


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


def write_shards(
    corpus: StreamedCorpus,
    tokenizer: PreTrainedTokenizerBase,
    *,
    max_ids: int,
    folders: Mapping[str, Path],
    progress: Path,
    out: Path,
    workers: int,
    report: Report,
) -> dict[str, Any]:
    """Tokenise both splits of a corpus into `out`, in `workers` threads.

    `progress` is the folder of the complete segments, from which an interrupted run continues.
    """
    dtype = token_dtype(len(tokenizer))
    progress.mkdir(parents=True, exist_ok=True)
    sealed = sealed_segments(progress, dtype)
    place = Place(**sealed[-1]["end"]) if sealed else Place()
    total = resumed = sum(segment["tokens"] for segment in sealed)
    blocks: list[TokenBlock] = []
    num_pending, began, earlier = 0, time.monotonic(), seconds_tokenised(progress)
    vocabulary = min(len(tokenizer), max_ids)
    for block in _tokenised(corpus, tokenizer, vocabulary, corpus.blocks(folders, place), workers):
        blocks.append(block)
        place, total, num_pending = block.end, total + block.ids.size, num_pending + block.ids.size
        if num_pending >= SEGMENT_TOKENS:
            sealed.append(seal(blocks, corpus.domains(), progress, len(sealed)))
            spent = {"seconds": earlier + time.monotonic() - began}
            write_json(progress / segment_name(len(sealed) - 1) / _SECONDS, spent)
            blocks, num_pending = [], 0
        seconds = max(time.monotonic() - began, 1e-9)
        report(
            {
                "stage": "tokenising",
                "documents": place.documents,
                "tokens": total,
                "tokens_per_second": round((total - resumed) / seconds),
            }
        )
    if num_pending:
        sealed.append(seal(blocks, corpus.domains(), progress, len(sealed)))
    if not total:
        raise DataError(
            corpus.plugin_name,
            "no tokens in any document",
            "text to tokenise",
            "add text, or set `files` to patterns that match files with text",
        )
    return _publish(sealed, corpus, tokenizer, progress, out)


def _tokenised(
    corpus: StreamedCorpus,
    tokenizer: PreTrainedTokenizerBase,
    vocabulary: int,
    blocks: Iterator[Block],
    workers: int,
) -> Iterator[TokenBlock]:
    """Tokenise blocks in `workers` threads; yield them in input order.

    Threads suffice, because the Rust tokenizers release the GIL while they encode. Each thread has
    its own tokenizer, because encoding changes options of the tokenizer.
    """
    own = threading.local()

    def begin() -> None:
        own.tokenizer = copy.deepcopy(tokenizer)

    def encode(block: Block) -> TokenBlock:
        return _encode(corpus, own.tokenizer, vocabulary, block)

    waiting: deque[Future[TokenBlock]] = deque()
    with ThreadPoolExecutor(workers, initializer=begin) as pool:
        for block in blocks:
            waiting.append(pool.submit(encode, block))
            if len(waiting) > workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _encode(
    corpus: StreamedCorpus, tokenizer: PreTrainedTokenizerBase, vocabulary: int, block: Block
) -> TokenBlock:
    found = encoded(tokenizer, block.documents)
    names = [document.name for document in block.documents]
    return TokenBlock(
        checked(found, block.documents, vocabulary).astype(token_dtype(len(tokenizer))),
        np.array([len(ids) for ids in found], dtype=np.int64),
        domain_indices(block.documents, corpus.domains()),
        np.array([corpus.split(name) == "held_out" for name in names], dtype=np.bool_),
        names,
        np.array([hash_key(document.text) for document in block.documents], dtype=np.uint64),
        block.end,
    )


def _publish(
    sealed: list[dict[str, Any]],
    corpus: StreamedCorpus,
    tokenizer: PreTrainedTokenizerBase,
    progress: Path,
    out: Path,
) -> dict[str, Any]:
    """Hard-link the files of all complete segments into `out`; write and return the manifest."""
    digests: dict[str, str] = {}
    for number, facts in enumerate(sealed):
        (out / segment_name(number)).mkdir()
        for name in (*facts["sha256"], FACTS):
            _link(progress / segment_name(number) / name, out / segment_name(number) / name)
        digests |= {f"{segment_name(number)}/{name}": sha for name, sha in facts["sha256"].items()}
    dtype = token_dtype(len(tokenizer))
    sizes = [
        sum(facts["bytes"].get(str(domain), 0) for facts in sealed) // dtype.itemsize
        for domain in range(len(corpus.domains()))
    ]
    manifest = {
        "dtype": dtype.name,
        "vocabulary": len(tokenizer),
        "separator": separator_of(tokenizer),
        "documents": sum(facts["documents"] for facts in sealed),
        "tokens": sum(facts["tokens"] for facts in sealed),
        "domains": [
            {"domain": name, "tokens": tokens}
            for name, tokens in zip(corpus.domains(), sizes, strict=True)
        ],
        "segments": [{k: facts[k] for k in ("documents", "tokens", "bytes")} for facts in sealed],
        "sha256": digests,
    }
    write_manifest(out, manifest)
    return manifest


def _link(old: Path, new: Path) -> None:
    """Hard-link a file into the output folder, or copy it on file systems without hard links."""
    # The file stays at `old` too: a run that is killed before the step ends continues from it.
    try:
        os.link(old, new)
    except OSError:
        shutil.copyfile(old, new)


def seal(
    blocks: Sequence[TokenBlock], domains: tuple[str, ...], progress: Path, number: int
) -> dict[str, Any]:
    """Write blocks as a segment to a temporary folder in `progress`; rename it when complete."""
    aside = progress / _WRITING
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir()
    lengths, of_domains, held_out, text_keys = (
        np.concatenate([getattr(block, name) for block in blocks])
        for name in ("lengths", "domains", "held_out", "text_keys")
    )
    names = [name for block in blocks for name in block.names]
    digests, sizes = {}, {}
    for domain in np.unique(of_domains[lengths > 0]).tolist():
        file, digest = aside / f"{domain}.bin", hashlib.sha256()
        with file.open("wb") as out:
            for block in blocks:
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
        "end": asdict(blocks[-1].end),
        "documents": len(names),
        "tokens": int(lengths.sum()),
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


def seconds_tokenised(progress: Path) -> float:
    """Return the seconds of all attempts until the last segment in `progress` was complete."""
    for file in sorted(progress.glob(f"[0-9]*/{_SECONDS}"), reverse=True):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            return float(read_mapping(file)["seconds"])
    return 0.0


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
