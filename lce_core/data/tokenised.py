"""A split of a corpus as tokens on disk, with an index of documents in memory.

Documents are read once, tokenised in batches, and appended to one file; the index keeps domain,
place and length of each (about 30 bytes a document), so that drawing and packing never read text
again and memory does not grow with the corpus. Text is only ever text: a document that spells a
special token gets the tokens of its characters, not the special token.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from lce_core.corpora import Corpus, Document, Split
from lce_core.errors import DataError
from lce_core.reports import Report

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

BATCH_CHARACTERS = 500_000
BATCH_DOCUMENTS = 1024
"""The Rust tokenizer needs about 100 bytes a token until a batch is done."""

TokenArray = NDArray[np.uint16] | NDArray[np.uint32]

_DOCUMENTS = pa.schema([("name", pa.string()), ("domain", pa.string()), ("tokens", pa.int64())])


@dataclass(frozen=True, eq=False)
class TokenisedDocuments:
    """Tokens of many documents in one memory-mapped file."""

    tokens: TokenArray
    """All tokens, document after document."""
    domains: NDArray[np.int64]
    """Index of each document's domain (documents,)."""
    starts: NDArray[np.int64]
    """First token of each document in `tokens` (documents,)."""
    lengths: NDArray[np.int64]
    """Tokens of each document, its separator included (documents,); 0 for empty text."""
    keys: NDArray[np.uint64]
    """Hash of each document's name (documents,): an order that does not depend on the others."""

    def document(self, index: int) -> TokenArray:
        """Tokens of one document, its separator first."""
        start = self.starts[index]
        return self.tokens[start : start + self.lengths[index]]


def token_dtype(vocabulary: int) -> np.dtype[Any]:
    """uint16 where it holds every id of a vocabulary of this size, else uint32."""
    return np.dtype(np.uint16 if vocabulary <= 1 << 16 else np.uint32)


def tokenise(
    documents: Iterable[Document],
    domains: tuple[str, ...],
    tokenizer: PreTrainedTokenizerBase,
    *,
    vocabulary: int,
    tokens_file: Path,
    index_file: Path,
    report: Report,
) -> TokenisedDocuments:
    """Tokenises documents into `tokens_file` and lists them in `index_file` (Parquet).

    Each document is preceded by the tokenizer's beginning-of-text token where it has one.

    Args:
      documents: in the order they are to be stored.
      domains: the corpus's domains; every document belongs to one.
      tokenizer: turns text into ids.
      vocabulary: ids lie below this.
      tokens_file: written: ids of all documents in the type `token_dtype(vocabulary)`.
      index_file: written: name, domain and number of tokens of each document.
      report: told {"stage", "documents", "tokens"} after each batch.

    Raises:
      DataError: a document of an unknown domain, or an id outside the vocabulary.
    """
    dtype = token_dtype(vocabulary)
    columns: list[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint64]]] = []
    done = total = 0
    with tokens_file.open("wb") as out, pq.ParquetWriter(index_file, _DOCUMENTS) as index:
        for batch in _batches(documents):
            encoded = _encode(tokenizer, batch)
            lengths = np.array([len(ids) for ids in encoded], dtype=np.int64)
            _write(encoded, batch, vocabulary, dtype, out)
            keys = np.array([_key(document.name) for document in batch], dtype=np.uint64)
            columns.append((_domain_indices(batch, domains), lengths, keys))
            index.write_table(_listing(batch, lengths))
            done, total = done + len(batch), total + int(lengths.sum())
            report({"stage": "tokenising", "documents": done, "tokens": total})
    found, lengths, keys = (
        (np.concatenate(parts) for parts in zip(*columns, strict=True))
        if columns
        else (np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.uint64))
    )
    tokens: TokenArray = (
        np.memmap(tokens_file, dtype=dtype, mode="r") if total else np.zeros(0, dtype=dtype)
    )
    return TokenisedDocuments(tokens, found, np.cumsum(lengths) - lengths, lengths, keys)


@contextmanager
def tokenised_split(
    corpus: Corpus,
    split: Split,
    tokenizer: PreTrainedTokenizerBase,
    vocabulary: int,
    folders: Mapping[str, Path],
    out: Path,
    report: Report,
) -> Iterator[TokenisedDocuments]:
    """The split's tokens for as long as they are needed; only their listing stays in `out`."""
    scratch = out / "tokens.scratch"
    try:
        yield tokenise(
            corpus.documents(split, folders),
            corpus.domains(),
            tokenizer,
            vocabulary=vocabulary,
            tokens_file=scratch,
            index_file=out / "documents.parquet",
            report=report,
        )
    finally:
        scratch.unlink(missing_ok=True)


def _batches(documents: Iterable[Document]) -> Iterator[list[Document]]:
    batch: list[Document] = []
    characters = 0
    for document in documents:
        batch.append(document)
        characters += len(document.text)
        if characters >= BATCH_CHARACTERS or len(batch) >= BATCH_DOCUMENTS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


def token_ids(tokenizer: PreTrainedTokenizerBase, texts: list[str]) -> list[list[int]]:
    """Ids of each text's characters, without any special token."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        found = tokenizer(texts, add_special_tokens=False, split_special_tokens=True)["input_ids"]
        return [list(ids) for ids in found]
    # The Rust tokenizer by itself: no offsets, masks or length warnings for each document.
    backend.no_truncation()
    backend.no_padding()
    before = backend.encode_special_tokens
    backend.encode_special_tokens = True
    try:
        encodings = backend.encode_batch_fast(texts, add_special_tokens=False)
    finally:
        backend.encode_special_tokens = before
    return [encoding.ids for encoding in encodings]


def separator_of(tokenizer: PreTrainedTokenizerBase) -> int | None:
    """The token before every document: the tokenizer's beginning of text, if it has one.

    Where it has none, the end of text stands between documents, as in Qwen's and GPT-NeoX's own
    training; where it has neither, nothing does.
    """
    begin: int | None = tokenizer.bos_token_id
    end: int | None = tokenizer.eos_token_id
    return end if begin is None else begin


def _encode(tokenizer: PreTrainedTokenizerBase, batch: list[Document]) -> list[list[int]]:
    """Ids of each document, its separator first; none at all for empty text."""
    ids = token_ids(tokenizer, [document.text for document in batch])
    first = separator_of(tokenizer)
    separator = [] if first is None else [first]
    return [separator + found if found else [] for found in ids]


def _write(
    encoded: list[list[int]],
    batch: list[Document],
    vocabulary: int,
    dtype: np.dtype[Any],
    out: BinaryIO,
) -> None:
    for document, ids in zip(batch, encoded, strict=True):
        wide = np.array(ids, dtype=np.int64)
        if wide.size and not 0 <= wide.min() <= wide.max() < vocabulary:
            raise DataError(
                document.name,
                f"token {wide.max()}",
                f"tokens of the model's vocabulary of {vocabulary}",
                "use the tokenizer that belongs to the model",
            )
        out.write(wide.astype(dtype).tobytes())


def _domain_indices(batch: list[Document], domains: tuple[str, ...]) -> NDArray[np.int64]:
    numbers = {name: number for number, name in enumerate(domains)}
    for document in batch:
        if document.domain not in numbers:
            raise DataError(
                document.name,
                f"domain {document.domain!r}",
                f"one of the corpus's domains: {', '.join(domains)}",
                "let the corpus name this domain",
            )
    return np.array([numbers[document.domain] for document in batch], dtype=np.int64)


def _listing(batch: list[Document], lengths: NDArray[np.int64]) -> pa.Table:
    columns = [[d.name for d in batch], [d.domain for d in batch], lengths]
    return pa.Table.from_arrays([pa.array(column) for column in columns], schema=_DOCUMENTS)


def _key(name: str) -> int:
    return int.from_bytes(hashlib.sha256(name.encode("utf-8")).digest()[:8], "big")
