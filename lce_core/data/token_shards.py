"""Open the documents of a split as token ids: read token shards, or tokenise the text.

Document lengths and domains of token shards are in memory (about 50 bytes per document), tokens are
memory maps. Documents of the training split whose text equals that of a held-out document have
length 0, as if they belonged to the other split.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from lce_core.corpora import Corpus, Document, Split
from lce_core.data.manifest import read_manifest
from lce_core.data.shards import INDEX, check_sizes, damaged, segment_name
from lce_core.data.tokenised import TokenArray, TokenPool, hash_key, tokenise
from lce_core.progress import Report

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

LISTING = "documents.parquet"


@dataclass(frozen=True, eq=False)
class TokenShards(TokenPool):
    """One split of the output of `write_shards`. Documents of the other split have length 0."""

    _segments: NDArray[np.int32]
    _starts: NDArray[np.int64]
    _folder: Path
    _dtype: np.dtype[Any]

    @classmethod
    def open(cls, folder: Path, split: Split) -> TokenShards:
        manifest = read_manifest(folder)
        dtype = np.dtype(manifest["dtype"])
        names = [entry["domain"] for entry in manifest["domains"]]
        parts = []
        for number, segment in enumerate(manifest["segments"]):
            found = _index(folder / segment_name(number), segment, names, dtype)
            held_out, domains, lengths, _, _ = found
            numbers = np.full(lengths.size, number, dtype=np.int32)
            parts.append((*found, numbers, _starts(domains, lengths)))
        held_out, domains, lengths, keys, texts, segments, starts = map(
            np.concatenate, zip(*parts, strict=True)
        )
        copies = ~held_out & np.isin(texts, texts[held_out & (lengths > 0)]) & (lengths > 0)
        lengths = np.where(held_out if split == "held_out" else ~(held_out | copies), lengths, 0)
        num_copies = int(copies.sum()) if split == "train" else 0
        return cls(domains, lengths, keys, segments, starts, folder, dtype, num_copies=num_copies)

    def document(self, index: int) -> TokenArray:
        """Return the token ids of one document as a memory map; the separator is the first.

        Each document gets a memory map of its own. With one map of the whole shard, every page that
        was ever read would count as memory of this process.
        """
        length = int(self.lengths[index])
        if not length:
            return np.zeros(0, dtype=self._dtype)
        segment = self._folder / segment_name(int(self._segments[index]))
        shard = segment / f"{self.domains[index]}.bin"
        offset = int(self._starts[index]) * self._dtype.itemsize
        return np.memmap(shard, dtype=self._dtype, mode="r", offset=offset, shape=(length,))


def _index(
    folder: Path, facts: Mapping[str, Any], names: list[str], dtype: np.dtype[Any]
) -> tuple[
    NDArray[np.bool_],
    NDArray[np.int64],
    NDArray[np.int64],
    NDArray[np.uint64],
    NDArray[np.uint64],
]:
    """Return five arrays (documents,) of a segment.

    The arrays contain True for held-out documents, the domain's index, the number of tokens, and
    `hash_key` of the name and of the text.
    """
    check_sizes(folder, facts, dtype)
    try:
        with pq.ParquetFile(folder / INDEX) as index:
            table = index.read([name for name in index.schema_arrow.names if name != "name"])
    except (OSError, pa.ArrowException) as error:
        raise damaged(folder / INDEX, f"no readable index ({type(error).__name__})") from error
    domain = table["domain"].unify_dictionaries().combine_chunks()
    listed = np.array([names.index(name) for name in domain.dictionary.to_pylist()], dtype=np.int64)
    domains = listed[domain.indices.to_numpy()]
    lengths = table["tokens"].to_numpy()
    if int(lengths.sum()) != facts["tokens"]:
        got = f"documents with {int(lengths.sum())} tokens instead of {facts['tokens']}"
        raise damaged(folder / INDEX, got)
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
    """Yield the documents of a split as token ids; they can be read until the `with` block ends.

    `shards` is the output of `write_shards` for the corpus. None tokenises the split into a
    temporary file in `out` and lists its documents there.
    """
    if shards is not None:
        yield TokenShards.open(shards, split)
        return
    scratch, copies = out / "tokens.scratch", list[str]()
    documents = corpus.documents(split, folders)
    if split == "train" and corpus.leaves_out_copies:
        documents = _emptied(documents, corpus.documents("held_out", folders), copies)
    try:
        pool = tokenise(
            documents,
            corpus.domains(),
            tokenizer,
            vocabulary=vocabulary,
            tokens_file=scratch,
            index_file=out / LISTING,
            report=report,
        )
        yield replace(pool, num_copies=len(copies))
    finally:
        scratch.unlink(missing_ok=True)


def _emptied(
    training: Iterable[Document], held_out: Iterable[Document], copies: list[str]
) -> Iterator[Document]:
    """Yield the training documents; those whose text a held-out one has are emptied and named."""
    texts = {hash_key(document.text) for document in held_out if document.text}
    for document in training:
        if hash_key(document.text) in texts:
            copies.append(document.name)
            document = replace(document, text="")
        yield document


def listings(out: Path) -> tuple[str, ...]:
    """Return the names of the Parquet files in `out` that list documents."""
    return (*((LISTING,) if (out / LISTING).is_file() else ()), "order.parquet")
