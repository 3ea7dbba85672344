"""A corpus as token shards: what is streamed once, and everything is cut from.

Text is read in the source's order, tokenised by several workers, and put together in order again,
so that no file depends on their number. Every `SEGMENT_TOKENS` a segment is sealed: a folder with
one flat file of ids for each domain that occurs (uint16 or uint32, to be memory-mapped), the list
of its documents, and the place in the source where the next one begins. A run that was killed goes
on after the last sealed segment. Memory holds one segment, a few blocks of text, and later, for
drawing, about 40 bytes a document.

    00000/0.bin  00000/2.bin  00000/documents.parquet  00000/segment.json  00001/...  manifest.json
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
import shutil
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from lce_core.corpora import Block, Place, Split, StreamedCorpus
from lce_core.data.manifest import read_manifest, write_manifest
from lce_core.data.tokenised import (
    TokenArray,
    checked,
    domain_indices,
    encoded,
    name_key,
    separator_of,
    token_dtype,
)
from lce_core.errors import DataError, StoreError
from lce_core.reports import Report
from lce_core.store.records import sync, write_json

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

SEGMENT_TOKENS = 1 << 25
"""A segment ends with the block that reaches it: 64 MB of uint16, a minute of one core's work."""
INDEX = "documents.parquet"
_SEGMENT = "segment.json"
_WRITING = ".writing"


@dataclass(frozen=True, eq=False)
class _Tokens:
    """One tokenised block."""

    ids: NDArray[Any]
    """Of all documents, one after the other (tokens,)."""
    lengths: NDArray[np.int64]
    domains: NDArray[np.int64]
    held_out: NDArray[np.bool_]
    names: list[str]
    end: Place


@dataclass(eq=False)
class _Segment:
    """Blocks that are not on disk yet."""

    blocks: list[_Tokens] = field(default_factory=list)
    tokens: int = 0

    def add(self, block: _Tokens) -> None:
        self.blocks.append(block)
        self.tokens += block.ids.size


def write_shards(
    corpus: StreamedCorpus,
    tokenizer: PreTrainedTokenizerBase,
    *,
    folders: Mapping[str, Path],
    progress: Path,
    out: Path,
    workers: int,
    report: Report,
) -> dict[str, Any]:
    """Tokenises both splits of a corpus into `out`.

    Args:
      corpus: where the text comes from.
      tokenizer: turns text into ids; each worker gets a copy.
      folders: of data, for the corpus.
      progress: keeps sealed segments until `out` is complete; what is in it is gone on from.
      out: existing folder to write into.
      workers: threads that tokenise; they change no byte.
      report: told {"stage", "documents", "tokens", "tokens_per_second"} after each block.

    Returns:
      The manifest, as written to manifest.json.

    Raises:
      UnavailableError: the corpus is neither here nor on a hub that answers.
      DataError: text that cannot be used, or none.
      SpecError: a tokenizer with more ids than 32 bits hold.
    """
    dtype = token_dtype(len(tokenizer))
    progress.mkdir(parents=True, exist_ok=True)
    sealed = _sealed(progress, dtype)
    place = Place(**sealed[-1]["end"]) if sealed else Place()
    total = resumed = sum(segment["tokens"] for segment in sealed)
    segment, began = _Segment(), time.monotonic()
    for block in _tokenised(corpus, tokenizer, corpus.blocks(folders, place), workers):
        segment.add(block)
        place, total = block.end, total + block.ids.size
        if segment.tokens >= SEGMENT_TOKENS:
            sealed.append(_seal(segment, corpus.domains(), progress, len(sealed)))
            segment = _Segment()
        seconds = max(time.monotonic() - began, 1e-9)
        report(
            {
                "stage": "tokenising",
                "documents": place.documents,
                "tokens": total,
                "tokens_per_second": round((total - resumed) / seconds),
            }
        )
    if segment.tokens:
        sealed.append(_seal(segment, corpus.domains(), progress, len(sealed)))
    if not total:
        raise DataError(
            corpus.plugin_name,
            "no tokens in any document",
            "text to tokenise",
            "add text, or let the study name other files",
        )
    return _publish(sealed, corpus, tokenizer, progress, out)


@dataclass(frozen=True, eq=False)
class TokenShards:
    """One split of what `write_shards` wrote; documents of the other one have no tokens here."""

    domains: NDArray[np.int64]
    """Index of each document's domain (documents,)."""
    lengths: NDArray[np.int64]
    """Tokens of each document, its separator included (documents,); 0 outside of the split."""
    keys: NDArray[np.uint64]
    """Hash of each document's name (documents,)."""
    _segments: NDArray[np.int32]
    _starts: NDArray[np.int64]
    _folder: Path
    _dtype: np.dtype[Any]

    @classmethod
    def open(cls, folder: Path, split: Split) -> TokenShards:
        """Reads the index and looks at the sizes of the shards.

        Raises:
          StoreError: the manifest is missing, or a shard is missing or not as long as it says.
        """
        manifest = read_manifest(folder)
        dtype = np.dtype(manifest["dtype"])
        names = [entry["domain"] for entry in manifest["domains"]]
        parts = []
        for number, segment in enumerate(manifest["segments"]):
            found = _index(folder / _name(number), segment, names, dtype)
            held_out, domains, lengths, keys = found
            lengths_here = np.where(held_out == (split == "held_out"), lengths, 0)
            numbers = np.full(lengths.size, number, dtype=np.int32)
            parts.append((domains, lengths_here, keys, numbers, _starts(domains, lengths)))
        domains, lengths, keys, segments, starts = map(np.concatenate, zip(*parts, strict=True))
        return cls(domains, lengths, keys, segments, starts, folder, dtype)

    def document(self, index: int) -> TokenArray:
        """Tokens of one document, its separator first: a memory map of these alone.

        A map of a whole shard would count all pages that were ever read as this process's memory.
        """
        length = int(self.lengths[index])
        if not length:
            return np.zeros(0, dtype=self._dtype)
        shard = self._folder / _name(int(self._segments[index])) / f"{self.domains[index]}.bin"
        offset = int(self._starts[index]) * self._dtype.itemsize
        return np.memmap(shard, dtype=self._dtype, mode="r", offset=offset, shape=(length,))


def _tokenised(
    corpus: StreamedCorpus,
    tokenizer: PreTrainedTokenizerBase,
    blocks: Iterator[Block],
    workers: int,
) -> Iterator[_Tokens]:
    """Tokenised blocks in the order they came in, with no more of them waiting than workers.

    Threads, since the Rust tokenizers let go of the interpreter while they encode; each has a copy,
    since encoding sets options of the tokenizer.
    """
    own = threading.local()

    def begin() -> None:
        own.tokenizer = copy.deepcopy(tokenizer)

    def encode(block: Block) -> _Tokens:
        return _encode(corpus, own.tokenizer, block)

    waiting: deque[Future[_Tokens]] = deque()
    with ThreadPoolExecutor(workers, initializer=begin) as pool:
        for block in blocks:
            waiting.append(pool.submit(encode, block))
            if len(waiting) > workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _encode(corpus: StreamedCorpus, tokenizer: PreTrainedTokenizerBase, block: Block) -> _Tokens:
    found = encoded(tokenizer, block.documents)
    names = [document.name for document in block.documents]
    return _Tokens(
        checked(found, block.documents, len(tokenizer)).astype(token_dtype(len(tokenizer))),
        np.array([len(ids) for ids in found], dtype=np.int64),
        domain_indices(block.documents, corpus.domains()),
        np.array([corpus.split(name) == "held_out" for name in names], dtype=np.bool_),
        names,
        block.end,
    )


def _seal(
    segment: _Segment, domains: tuple[str, ...], progress: Path, number: int
) -> dict[str, Any]:
    """Writes a segment aside, and renames it into place once all of it is on disk."""
    aside = progress / _WRITING
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir()
    lengths, of_domains, held_out = (
        np.concatenate([getattr(block, name) for block in segment.blocks])
        for name in ("lengths", "domains", "held_out")
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
        "key": pa.array([name_key(name) for name in names], pa.uint64()),
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
    write_json(aside / _SEGMENT, facts)
    sync(aside)
    aside.rename(progress / _name(number))
    sync(progress)
    return facts


def _sealed(progress: Path, dtype: np.dtype[Any]) -> list[dict[str, Any]]:
    """Facts of the segments that a stopped run has left, up to the first that is not whole.

    That one and all after it are removed: what follows a gap would be in the wrong place.
    """
    found: list[dict[str, Any]] = []
    while (folder := progress / _name(len(found))).is_dir():
        try:
            facts = json.loads((folder / _SEGMENT).read_text(encoding="utf-8"))
            _check_sizes(folder, facts, dtype)
        except (OSError, ValueError, StoreError):
            break
        found.append(facts)
    for folder in progress.iterdir():
        if folder.name not in {_name(number) for number in range(len(found))}:
            shutil.rmtree(folder)
    return found


def _publish(
    sealed: list[dict[str, Any]],
    corpus: StreamedCorpus,
    tokenizer: PreTrainedTokenizerBase,
    progress: Path,
    out: Path,
) -> dict[str, Any]:
    """The sealed segments under their names in `out`, with a manifest of all."""
    digests: dict[str, str] = {}
    for number, facts in enumerate(sealed):
        (out / _name(number)).mkdir()
        for name in (*facts["sha256"], _SEGMENT):
            _link(progress / _name(number) / name, out / _name(number) / name)
        digests |= {f"{_name(number)}/{name}": sha for name, sha in facts["sha256"].items()}
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
    """The same file under another name: until the artifact is committed, progress must stay."""
    try:
        os.link(old, new)
    except OSError:  # a file system without links
        shutil.copyfile(old, new)


def _index(
    folder: Path, facts: Mapping[str, Any], names: list[str], dtype: np.dtype[Any]
) -> tuple[NDArray[np.bool_], NDArray[np.int64], NDArray[np.int64], NDArray[np.uint64]]:
    """Held out or not, domains, lengths and keys of a segment's documents."""
    _check_sizes(folder, facts, dtype)
    columns = ["domain", "tokens", "held_out", "key"]
    try:
        table = pq.read_table(folder / INDEX, columns=columns)
    except (OSError, pa.ArrowException) as error:
        raise _damaged(folder / INDEX, f"no readable index ({type(error).__name__})") from error
    domain = table["domain"].unify_dictionaries().combine_chunks()
    listed = np.array([names.index(name) for name in domain.dictionary.to_pylist()], dtype=np.int64)
    domains = listed[domain.indices.to_numpy()]
    lengths = table["tokens"].to_numpy()
    if int(lengths.sum()) != facts["tokens"]:
        raise _damaged(folder / INDEX, f"documents of {int(lengths.sum())} tokens")
    return table["held_out"].to_numpy(), domains, lengths, table["key"].to_numpy()


def _check_sizes(folder: Path, facts: Mapping[str, Any], dtype: np.dtype[Any]) -> None:
    if sum(facts["bytes"].values()) != facts["tokens"] * dtype.itemsize:
        raise _damaged(folder, f"{facts['tokens']} tokens of another size than {dtype.name}")
    for domain, expected in facts["bytes"].items():
        file = folder / f"{domain}.bin"
        size = file.stat().st_size if file.is_file() else None
        if size != expected:
            raise _damaged(file, "no such file" if size is None else f"{size} of {expected} bytes")


def _damaged(file: Path, got: str) -> StoreError:
    return StoreError(
        file,
        got,
        "a token shard as the manifest describes it",
        "run the study again, which tokenises what is missing",
    )


def _starts(domains: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """First token of each document in its domain's shard."""
    starts = np.zeros(lengths.size, dtype=np.int64)
    for domain in np.unique(domains):
        members = np.flatnonzero(domains == domain)
        starts[members] = np.cumsum(lengths[members]) - lengths[members]
    return starts


def _name(number: int) -> str:
    return f"{number:05d}"
