"""Tokenised documents of PG19, Proof-pile, GovReport or the study's held-out text.

Each text file of a data set is one document, and each row of a .jsonl or .parquet file is one, in
the column `text` (`input` in GovReport). Files are read by name, only as far as needed. A process
tokenises each document once for each base model.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from lce_core.benchmarks._base import CellRequest
from lce_core.benchmarks._data import DataSet, Seen, fact_of_files, read_rows, read_text
from lce_core.errors import DataError, UnavailableError
from lce_core.models import LanguageModel

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Tokens = NDArray[np.uint32]

_TABLES = ("*.jsonl", "*.parquet")
DATA_SETS = {
    "pg19": DataSet("pg19", ("*.txt", *_TABLES), "github.com/google-deepmind/pg19 (test books)"),
    "proof_pile": DataSet(
        "proof_pile",
        ("*.tex", "*.txt", *_TABLES),
        "huggingface.co/datasets/hoskinson-center/proof-pile (test)",
    ),
    "govreport": DataSet(
        "govreport", ("*.txt", *_TABLES), "huggingface.co/datasets/tau/scrolls (gov_report, test)"
    ),
}
PUBLISHED_SIZES = {"pg19": (100, 105_000), "proof_pile": (128, 66_000), "govreport": (973, 11_600)}
"""(documents of the published test set, approximate Llama tokens of a document), used only to
estimate costs before data is read.

PG19's 100 test books have 6,966,499 words (arXiv:1911.05507, table 1) at 1.5 tokens per word.
LongLoRA's sample of Proof-pile has 128 documents of at least 32,768 tokens, taken to have twice as
many. GovReport's 973 reports have 7,897 words each (arXiv:2201.03533, table 1).
"""
_COLUMNS = ("text", "input")
"""Columns that may contain a document's text."""
_MARK = r"\*\*\* ?{} OF (?:THIS|THE) PROJECT GUTENBERG EBOOK[^*]*\*\*\*"
_START, _END = re.compile(_MARK.format("START")), re.compile(_MARK.format("END"))
_LATIN = re.compile(rb"Character set encoding: *(ISO-8859-\d+)")
_KEPT_SOURCES = 4
"""Maximum number of tokenised data sets that a process keeps in memory."""


@dataclass(frozen=True, eq=False)
class Documents:
    """Tokenised documents, in order."""

    names: tuple[str, ...]
    tokens: tuple[Tokens, ...]
    """Ids of each document, without special tokens."""
    bos: int | None
    """Id of the beginning-of-text token that `joined` puts before every document; None: none."""

    def joined(self) -> Tokens:
        """Concatenate all documents, each preceded by `bos` (tokens,)."""
        first = np.array([] if self.bos is None else [self.bos], dtype=np.uint32)
        return np.concatenate([part for ids in self.tokens for part in (first, ids)])

    def names_at(self, places: NDArray[np.int64]) -> list[str]:
        """Return the name of the document at each index in `joined()`."""
        sizes = [len(ids) + (self.bos is not None) for ids in self.tokens]
        found = np.searchsorted(np.cumsum(sizes), places, side="right")
        return [self.names[index] for index in found]


def read_documents(
    request: CellRequest,
    name: str,
    *,
    at_least: int = 1,
    at_most: int | None = None,
    max_tokens: int | None = None,
) -> Documents:
    """Read the first documents of a data set.

    Args:
      request: provides folder and tokenizer.
      name: one of `DATA_SETS`.
      at_least: skip documents with fewer tokens.
      at_most: maximum number of documents; None for all.
      max_tokens: maximum tokens of all documents together, which cuts the last; None for no limit.

    Raises:
      UnavailableError: if the data set is not on this machine, or has no document of that length.
      DataError: if a file cannot be read.
    """
    source = _source(request.tokenizer, name, request.data_folders)
    chosen: list[tuple[str, Tokens]] = []
    total = longest = 0
    for document, ids in source.documents():
        longest = max(longest, len(ids))
        if len(ids) >= at_least:
            chosen.append((document, ids[: None if max_tokens is None else max_tokens - total]))
            total += len(ids)
        if len(chosen) == at_most or (max_tokens is not None and total >= max_tokens):
            break
    if not chosen:
        raise UnavailableError(
            f"data set {name!r}",
            f"{longest} tokens in the longest document",
            f"a document of at least {at_least} tokens",
            "lower min_document_tokens or give longer documents",
        )
    names, tokens = zip(*chosen, strict=True)
    return Documents(names, tokens, _separator(request))


def _separator(request: CellRequest) -> int | None:
    from lce_core.data.tokenised import separator_of

    return separator_of(request.tokenizer)


def held_out_documents(request: CellRequest, *, at_least: int, max_tokens: int | None) -> Documents:
    """Return the documents of the task's held-out domain, named DOMAIN-INDEX.

    Args:
      request: provides text and domain.
      at_least: skip documents with fewer tokens.
      max_tokens: maximum tokens of the domain to read, which cuts the last document; None for all.

    Raises:
      UnavailableError: if there is no document of that length.
    """
    stream = request.held_out.stream(request.task)[:max_tokens]
    starts = request.held_out.document_starts(request.task)
    bos = _separator(request)
    parts = np.split(stream, starts[(starts > 0) & (starts < len(stream))])
    tokens = [part[1:] if bos is not None and part[:1] == bos else part for part in parts]
    chosen = [index for index, ids in enumerate(tokens) if len(ids) >= at_least]
    if not chosen:
        raise UnavailableError(
            f"domain {request.task!r}",
            f"{max(map(len, tokens))} tokens in the longest held-out document",
            f"a document of at least {at_least} tokens",
            "lower min_document_tokens or give longer documents",
        )
    names = tuple(f"{request.task}-{index}" for index in chosen)
    return Documents(names, tuple(tokens[index] for index in chosen), bos)


def document_tokens(
    base_model: LanguageModel,
    name: str,
    folders: Mapping[str, Path],
    *,
    at_least: int = 1,
    at_most: int | None = None,
) -> list[int]:
    """Estimate the tokens of each document that `read_documents` would return, from its bytes.

    Raises:
      UnavailableError: if the data set is not on this machine.
      DataError: if a file cannot be read.
    """
    tex = name == "proof_pile"
    ratio = base_model.bytes_per_tex_token if tex else base_model.bytes_per_token
    sizes = _bytes(name, DATA_SETS[name].seen(folders), at_least * ratio, at_most)
    return [round(size / ratio) for size in sizes]


@lru_cache(maxsize=64)
def _bytes(name: str, files: Seen, at_least: float, at_most: int | None) -> tuple[int, ...]:
    def read() -> list[int]:
        sizes = (len(text.encode()) for _, text in _texts(name, files))
        return list(islice((size for size in sizes if size >= at_least), at_most))

    what = f"documents 1: bytes in {name}, {at_least} or more, of {at_most}"
    return tuple(fact_of_files(what, files, read))


def _texts(name: str, files: Seen) -> Iterator[tuple[str, str]]:
    for file in (Path(path) for path, *_ in files):
        if file.suffix in (".txt", ".tex"):
            yield file.name, _book(file) if name == "pg19" else read_text(file)
            continue
        for number, row in enumerate(read_rows(file, ()), start=1):
            text = next((row[key] for key in _COLUMNS if isinstance(row.get(key), str)), None)
            if text is None:
                raise DataError(
                    f"{file}: row {number}",
                    f"no text in {' or '.join(_COLUMNS)}, only"
                    f" {', '.join(sorted(row)) or 'nothing'}",
                    "documents as text, for the base model's own tokenizer",
                    "use the data set in its published form",
                )
            yield f"{file.name}:{number}", text


def _book(file: Path) -> str:
    """Return a Project Gutenberg text without its header and licence."""
    declared = _LATIN.search(file.read_bytes()[:4096])
    text = read_text(file, declared.group(1).decode() if declared else "utf-8")
    start, end = _START.search(text), _END.search(text)
    return text[start.end() if start else 0 : end.start() if end else None].strip() + "\n"


class _Source:
    """Tokenises the documents of a data set on demand, each once for all callers."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, name: str, files: Seen) -> None:
        self._tokenizer, self._texts = tokenizer, _texts(name, files)
        self._done: list[tuple[str, Tokens]] = []
        self._error: DataError | None = None

    def documents(self) -> Iterator[tuple[str, Tokens]]:
        from lce_core.data.tokenised import token_ids

        yield from self._done
        # A generator that raised is exhausted: without this check the set would look complete.
        if self._error is not None:
            raise self._error
        try:
            for name, text in self._texts:
                ids = np.array(token_ids(self._tokenizer, [text])[0], dtype=np.uint32)
                self._done.append((name, ids))
                yield name, ids
        except DataError as error:
            self._error = error
            raise


_SOURCES: dict[tuple[object, ...], _Source] = {}


def _source(tokenizer: PreTrainedTokenizerBase, name: str, folders: Mapping[str, Path]) -> _Source:
    seen = DATA_SETS[name].seen(folders)
    backend = getattr(tokenizer, "backend_tokenizer", None)
    # Without a backend there is no cache key that distinguishes two tokenizers.
    if backend is None:
        return _Source(tokenizer, name, seen)
    key = (name, seen, hashlib.sha256(backend.to_str().encode()).hexdigest())
    if key not in _SOURCES:
        while len(_SOURCES) >= _KEPT_SOURCES:
            _SOURCES.pop(next(iter(_SOURCES)))
        _SOURCES[key] = _Source(tokenizer, name, seen)
    return _SOURCES[key]
