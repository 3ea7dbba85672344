"""Tokenise documents into a file on disk, with an index of the documents in memory.

The index takes about 30 bytes per document, so memory grows only with the number of documents. If a
text contains the name of a special token, such as "</s>", the name is tokenised as plain
characters.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from lce_core.corpora import Document
from lce_core.errors import DataError, SpecError, StoreError
from lce_core.progress import Report
from lce_core.store.identity import sha256_file
from lce_core.store.odd_files import read_mapping

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

LISTING, SCRATCH = "documents.parquet", "tokens.scratch"
MANIFEST = "manifest.json"
"""File that describes the contents of a folder of tokens, with their sha256."""
BATCH_CHARACTERS = 500_000
BATCH_DOCUMENTS = 1024
"""A batch ends at `BATCH_CHARACTERS` characters or at this many documents. Both limit memory: the
Rust tokenizer needs about 100 bytes per token until the batch is done."""

TokenArray = NDArray[np.uint16] | NDArray[np.uint32]

_DOCUMENTS = pa.schema([("name", pa.string()), ("domain", pa.string()), ("tokens", pa.int64())])


@dataclass(frozen=True, eq=False)
class TokenPool:
    """Documents of a split as token ids. Only lengths, domains and keys are in memory."""

    domains: NDArray[np.int64]
    """Index of each document's domain (documents,)."""
    lengths: NDArray[np.int64]
    """Number of tokens of each document, with its separator (documents,); 0 if the text is empty or
    the document belongs to another split."""
    keys: NDArray[np.uint64]
    """`hash_key` of each document's name (documents,); sorting by it shuffles the documents."""
    document: Callable[[int], TokenArray]
    """Returns the token ids of one document; the separator, if any, is the first."""
    num_copies: int = 0
    """Number of documents of the training split that are left out, with length 0, because a
    held-out document has the same text."""


def file_digests(folder: Path, *names: str) -> dict[str, str]:
    return {name: sha256_file(folder / name) for name in names}


def read_manifest(folder: Path) -> dict[str, Any]:
    try:
        return read_mapping(folder / MANIFEST)
    except (OSError, ValueError) as error:
        expected = "a JSON object that describes the files of its folder"
        raise damaged(folder / MANIFEST, f"an unreadable file ({error})", expected) from error


def require_size(file: Path, expected: int) -> None:
    """Raise StoreError if a file has not the size that its step's manifest.json implies."""
    size = file.stat().st_size if file.is_file() else None
    if size != expected:
        got = "no such file" if size is None else f"{size} bytes"
        raise damaged(file, got, f"the {expected} bytes that {MANIFEST} names")


def damaged(file: Path, got: str, expected: str) -> StoreError:
    return StoreError(
        file,
        got,
        expected,
        "run the study again, which makes what is damaged again",
    )


def token_dtype(vocabulary: int) -> np.dtype[Any]:
    if vocabulary > 1 << 32:
        raise SpecError(
            "tokenizer",
            f"a vocabulary of {vocabulary} ids",
            "at most 2^32 ids, because ids are stored in 32 bits",
            "use the tokenizer that belongs to the model",
        )
    return np.dtype(np.uint16 if vocabulary <= 1 << 16 else np.uint32)


def tokenise(
    documents: Iterable[Document],
    domains: tuple[str, ...],
    tokenizer: PreTrainedTokenizerBase,
    vocabulary: int,
    out: Path,
    report: Report,
) -> TokenPool:
    """Tokenise documents into `SCRATCH` and list them in `LISTING` (Parquet), both in `out`."""
    dtype = token_dtype(vocabulary)
    # The first batch is empty, because a split may have no documents.
    columns = [(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.uint64))]
    done, total, began = 0, 0, time.monotonic()
    with (
        (out / SCRATCH).open("wb") as scratch,
        pq.ParquetWriter(out / LISTING, _DOCUMENTS) as index,
    ):
        for batch in _batches(documents):
            ids, lengths, indices = encoded(tokenizer, batch, domains, vocabulary)
            scratch.write(ids.astype(dtype).tobytes())
            keys = np.array([hash_key(document.name) for document in batch], dtype=np.uint64)
            columns.append((indices, lengths, keys))
            listing = [[d.name for d in batch], [d.domain for d in batch], lengths]
            arrays = [pa.array(column) for column in listing]
            index.write_table(pa.Table.from_arrays(arrays, schema=_DOCUMENTS))
            done, total = done + len(batch), total + int(lengths.sum())
            speed = round(total / max(time.monotonic() - began, 1e-9))
            event = {"stage": "tokenising", "documents": done, "tokens": total}
            report({**event, "tokens_per_second": speed})
    found, lengths, keys = (np.concatenate(parts) for parts in zip(*columns, strict=True))
    tokens: TokenArray = (
        np.memmap(out / SCRATCH, dtype=dtype, mode="r") if total else np.zeros(0, dtype=dtype)
    )
    starts = np.cumsum(lengths) - lengths
    return TokenPool(found, lengths, keys, lambda index: tokens[starts[index] :][: lengths[index]])


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
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        found = tokenizer(texts, add_special_tokens=False, split_special_tokens=True)["input_ids"]
        return [list(ids) for ids in found]
    # Call the Rust tokenizer directly, which skips offsets, masks and length warnings.
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
    """Return the id of the token that is put before every document; None for no such token.

    Qwen and GPT-NeoX have no beginning-of-text token; their training separated documents by the
    end-of-text token.
    """
    begin: int | None = tokenizer.bos_token_id
    end: int | None = tokenizer.eos_token_id
    return end if begin is None else begin


def encoded(
    tokenizer: PreTrainedTokenizerBase,
    batch: Sequence[Document],
    domains: tuple[str, ...],
    vocabulary: int,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return the ids of all documents (tokens,), and lengths and domain indices (documents,).

    The separator's id precedes the ids of each text that is not empty.
    """
    first = separator_of(tokenizer)
    separator = [] if first is None else [first]
    found = token_ids(tokenizer, [document.text for document in batch])
    found = [separator + ids if ids else [] for ids in found]
    lengths = np.array([len(ids) for ids in found], dtype=np.int64)
    wide = np.fromiter(chain.from_iterable(found), dtype=np.int64, count=int(lengths.sum()))
    outside = np.flatnonzero((wide < 0) | (wide >= vocabulary))
    if outside.size:
        raise DataError(
            batch[int(np.searchsorted(np.cumsum(lengths), outside[0], side="right"))].name,
            f"token {wide[outside[0]]}",
            f"tokens of the model's vocabulary of {vocabulary}",
            "use the tokenizer that belongs to the model",
        )
    numbers = {name: number for number, name in enumerate(domains)}
    for document in batch:
        if document.domain not in numbers:
            raise DataError(
                document.name,
                f"domain {document.domain!r}",
                f"one of the corpus's domains: {', '.join(domains)}",
                "add this domain to the corpus's domains()",
            )
    indices = np.array([numbers[document.domain] for document in batch], dtype=np.int64)
    return wide, lengths, indices


def hash_key(text: str) -> int:
    """Return the first 64 bits of the sha256 of a document's name or text.

    Keys of names are a reproducible pseudorandom order; equal keys of texts reveal equal texts.
    """
    return int.from_bytes(hashlib.sha256(text.encode("utf-8")).digest()[:8], "big")
