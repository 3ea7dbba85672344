"""Token shards of a corpus, from which training rows and held-out text are cut.

Several threads tokenise, and the source's order decides the files, so that these do not depend on
the number of threads. Only one segment and a few blocks of text are in memory.

A segment is the unit that is written and checked as a whole; a killed run continues after the last
complete one. It has one file of ids for each domain that occurs in it, the list of its documents,
and the position in the source at which the next one starts. If domains 0 and 2 occur in the first:

    00000/0.bin  00000/2.bin  00000/documents.parquet  00000/segment.json  00001/...  manifest.json

Readers have lengths and domains in memory (about 50 bytes per document); tokens are memory maps. A
document of the training split whose text equals that of a held-out document has length 0, as if it
belonged to the other split.
"""

from __future__ import annotations

import contextlib
import copy
import os
import shutil
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from lce_core.corpora import Block, Corpus, Document, Place, Split, StreamedCorpus
from lce_core.data import tokenised
from lce_core.data.tokenised import LISTING, MANIFEST, TokenArray, TokenPool, hash_key
from lce_core.errors import DataError, StoreError
from lce_core.progress import Report
from lce_core.store.odd_files import read_mapping, remove
from lce_core.store.records import sync, write_json

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

FACTS = "segment.json"
_SECONDS = "seconds.json"
"""File of a segment that stays in `progress`: the output does not depend on time."""
_WRITING = ".writing"
_SHARD = "a token shard as the manifest describes it"
SEGMENT_TOKENS = 1 << 25
"""A segment is written when it has at least this many tokens: 64 MiB of uint16, about a minute of
work for one core. An interrupted run repeats the work of at most one segment."""


@dataclass(frozen=True, eq=False)
class TokenBlock:
    """A tokenised `lce_core.corpora.Block`: all ids (tokens,), and arrays (documents,)."""

    ids: NDArray[Any]
    lengths: NDArray[np.int64]
    domains: NDArray[np.int64]
    held_out: NDArray[np.bool_]
    names: list[str]
    text_keys: NDArray[np.uint64]
    end: Place


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
    dtype = tokenised.token_dtype(len(tokenizer))
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
    # Threads suffice, because the Rust tokenizers release the GIL while they encode. Each thread
    # has its own tokenizer, because encoding changes options of the tokenizer.
    own = threading.local()

    def begin() -> None:
        own.tokenizer = copy.deepcopy(tokenizer)

    def encode(block: Block) -> TokenBlock:
        documents = block.documents
        ids, lengths, domains = tokenised.encoded(
            own.tokenizer, documents, corpus.domains(), vocabulary
        )
        names = [document.name for document in documents]
        return TokenBlock(
            ids.astype(tokenised.token_dtype(len(tokenizer))),
            lengths,
            domains,
            np.array([corpus.split(name) == "held_out" for name in names], dtype=np.bool_),
            names,
            np.array([hash_key(document.text) for document in documents], dtype=np.uint64),
            block.end,
        )

    waiting: deque[Future[TokenBlock]] = deque()
    with ThreadPoolExecutor(workers, initializer=begin) as pool:
        for block in blocks:
            waiting.append(pool.submit(encode, block))
            if len(waiting) > workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


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
            old, new = (root / segment_name(number) / name for root in (progress, out))
            # The file stays at `old` too: a run that is killed before the step ends continues from
            # it. Some file systems lack hard links.
            try:
                os.link(old, new)
            except OSError:
                shutil.copyfile(old, new)
        digests |= {f"{segment_name(number)}/{name}": sha for name, sha in facts["sha256"].items()}
    dtype = tokenised.token_dtype(len(tokenizer))
    sizes = [
        sum(facts["bytes"].get(str(domain), 0) for facts in sealed) // dtype.itemsize
        for domain in range(len(corpus.domains()))
    ]
    manifest = {
        "dtype": dtype.name,
        "vocabulary": len(tokenizer),
        "separator": tokenised.separator_of(tokenizer),
        "documents": sum(facts["documents"] for facts in sealed),
        "tokens": sum(facts["tokens"] for facts in sealed),
        "domains": [
            {"domain": name, "tokens": tokens}
            for name, tokens in zip(corpus.domains(), sizes, strict=True)
        ],
        "segments": [{k: facts[k] for k in ("documents", "tokens", "bytes")} for facts in sealed],
        "sha256": digests,
    }
    write_json(out / MANIFEST, manifest)
    return manifest


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
    sizes = {}
    for domain in np.unique(of_domains[lengths > 0]).tolist():
        with (aside / f"{domain}.bin").open("wb") as out:
            for block in blocks:
                out.write(block.ids[np.repeat(block.domains == domain, block.lengths)].tobytes())
            sizes[str(domain)] = out.tell()
    columns = {
        "name": pa.array(names, pa.string()),
        "domain": pa.DictionaryArray.from_arrays(pa.array(of_domains, pa.int16()), list(domains)),
        "tokens": pa.array(lengths),
        "held_out": pa.array(held_out),
        "key": pa.array([hash_key(name) for name in names], pa.uint64()),
        "text": pa.array(text_keys),
    }
    pq.write_table(pa.table(columns), aside / LISTING)
    facts = {
        "end": asdict(blocks[-1].end),
        "documents": len(names),
        "tokens": int(lengths.sum()),
        "bytes": sizes,
        "sha256": tokenised.file_digests(aside, *(f"{domain}.bin" for domain in sizes), LISTING),
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
    """Return segment.json of each complete segment; delete the first damaged and all later ones."""
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
        raise tokenised.damaged(folder, got, _SHARD)
    for domain, expected in facts["bytes"].items():
        tokenised.require_size(folder / f"{domain}.bin", expected)


def segment_name(number: int) -> str:
    return f"{number:05d}"


def open_shards(folder: Path, split: Split) -> TokenPool:
    """Open one split of the output of `write_shards`; documents of the other one have length 0."""
    manifest = tokenised.read_manifest(folder)
    dtype = np.dtype(manifest["dtype"])
    names = [entry["domain"] for entry in manifest["domains"]]
    parts = []
    for number, segment in enumerate(manifest["segments"]):
        found = _index(folder / segment_name(number), segment, names, dtype)
        _, domains, lengths, _, _ = found
        numbers = np.full(lengths.size, number, dtype=np.int32)
        parts.append((*found, numbers, _starts(domains, lengths)))
    held_out, domains, lengths, keys, texts, segments, starts = map(
        np.concatenate, zip(*parts, strict=True)
    )
    copies = ~held_out & np.isin(texts, texts[held_out & (lengths > 0)]) & (lengths > 0)
    lengths = np.where(held_out if split == "held_out" else ~(held_out | copies), lengths, 0)

    def document(index: int) -> TokenArray:
        length = int(lengths[index])
        if not length:
            return np.zeros(0, dtype=dtype)
        # With one map of the whole shard, every page that was ever read would count as memory of
        # this process.
        shard = folder / segment_name(int(segments[index])) / f"{domains[index]}.bin"
        offset = int(starts[index]) * dtype.itemsize
        return np.memmap(shard, dtype=dtype, mode="r", offset=offset, shape=(length,))

    num_copies = int(copies.sum()) if split == "train" else 0
    return TokenPool(domains, lengths, keys, document, num_copies)


def _index(
    folder: Path, facts: Mapping[str, Any], names: list[str], dtype: np.dtype[Any]
) -> tuple[NDArray[Any], ...]:
    # Five arrays (documents,): held out or not, the domain's index, the number of tokens, and
    # `hash_key` of the name and of the text.
    check_sizes(folder, facts, dtype)
    try:
        with pq.ParquetFile(folder / LISTING) as index:
            table = index.read([name for name in index.schema_arrow.names if name != "name"])
    except (OSError, pa.ArrowException) as error:
        got = f"no readable index ({type(error).__name__})"
        raise tokenised.damaged(folder / LISTING, got, _SHARD) from error
    domain = table["domain"].unify_dictionaries().combine_chunks()
    listed = np.array([names.index(name) for name in domain.dictionary.to_pylist()], dtype=np.int64)
    domains = listed[domain.indices.to_numpy()]
    lengths = table["tokens"].to_numpy()
    if int(lengths.sum()) != facts["tokens"]:
        got = f"documents with {int(lengths.sum())} tokens instead of {facts['tokens']}"
        raise tokenised.damaged(folder / LISTING, got, _SHARD)
    keys = table["key"].to_numpy()
    return table["held_out"].to_numpy(), domains, lengths, keys, table["text"].to_numpy()


def _starts(domains: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    starts = np.zeros(lengths.size, dtype=np.int64)
    for domain in np.unique(domains):
        members = np.flatnonzero(domains == domain)
        starts[members] = np.cumsum(lengths[members]) - lengths[members]
    return starts


@contextmanager
def token_pool(
    corpus: Corpus,
    split: Split,
    tokenizer: PreTrainedTokenizerBase,
    vocabulary: int,
    folders: Mapping[str, Path],
    shards: Path | None,
    out: Path,
    report: Report,
) -> Iterator[TokenPool]:
    """Yield the documents of a split as token ids, which the `with` block may read.

    `shards` is the output of `write_shards`; None tokenises the split into a temporary file in
    `out` and lists its documents there.
    """
    if shards is not None:
        yield open_shards(shards, split)
        return
    copies = list[str]()
    documents = corpus.documents(split, folders)
    if split == "train" and corpus.leaves_out_copies:
        documents = _emptied(documents, corpus.documents("held_out", folders), copies)
    try:
        pool = tokenised.tokenise(documents, corpus.domains(), tokenizer, vocabulary, out, report)
        yield replace(pool, num_copies=len(copies))
    finally:
        (out / tokenised.SCRATCH).unlink(missing_ok=True)


def _emptied(
    training: Iterable[Document], held_out: Iterable[Document], copies: list[str]
) -> Iterator[Document]:
    """Yield the training documents; empty those whose text a held-out one has, and name them."""
    texts = {hash_key(document.text) for document in held_out if document.text}
    for document in training:
        if hash_key(document.text) in texts:
            copies.append(document.name)
            document = replace(document, text="")
        yield document


def listings(out: Path) -> tuple[str, ...]:
    """Return the names of the Parquet files in `out` that list documents."""
    return (*((LISTING,) if (out / LISTING).is_file() else ()), "order.parquet")
