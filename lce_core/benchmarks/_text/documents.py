"""Tokenised documents of PG19, Proof-pile, GovReport or the study's held-out text.

A text file of a data set is one document. In a .jsonl or .parquet file each row is one document.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lce_core.benchmarks._base import CellRequest
from lce_core.benchmarks._data import DataSet, Table, read_rows, read_text
from lce_core.data.tokenised import separator_of, token_ids
from lce_core.errors import DataError, UnavailableError
from lce_core.models import LanguageModel

Tokens = NDArray[np.uint32]

DATA_SETS = {
    name: DataSet(name, (*patterns, "*.jsonl", "*.parquet"), origin, (Table(),))
    for name, patterns, origin in (
        ("pg19", ("*.txt",), "github.com/google-deepmind/pg19 (test books)"),
        (
            "proof_pile",
            ("*.tex", "*.txt"),
            "huggingface.co/datasets/hoskinson-center/proof-pile (test)",
        ),
        ("govreport", ("*.txt",), "huggingface.co/datasets/tau/scrolls (gov_report, test)"),
    )
}
PUBLISHED_SIZES = {"pg19": (100, 105_000), "proof_pile": (128, 66_000), "govreport": (973, 11_600)}
"""(number of documents of the published test set, approximate mean Llama tokens of a document),
only for costs before data is read.

PG19's 100 test books have 6,966,499 words (arXiv:1911.05507, table 1) at 1.5 tokens per word.
LongLoRA's sample of Proof-pile has 128 documents of at least 32,768 tokens; their mean is assumed
to be twice that. GovReport's 973 reports have 7,897 words on average (arXiv:2201.03533, table 1).
"""
_COLUMNS = ("text", "input")
"""Columns that may contain a document's text; the first one that is text is used."""
_MARK = r"\*\*\* ?{} OF (?:THIS|THE) PROJECT GUTENBERG EBOOK[^*]*\*\*\*"
_START, _END = re.compile(_MARK.format("START")), re.compile(_MARK.format("END"))
_LATIN = re.compile(rb"Character set encoding: *(ISO-8859-\d+)")
_KEPT_SOURCES = 4


@dataclass(frozen=True, eq=False)
class Documents:
    """Tokenised documents, in order."""

    names: tuple[str, ...]
    tokens: tuple[Tokens, ...]
    """Token ids of each document, without special tokens."""
    bos: int | None
    """Id of the token that `joined` puts before every document, if the tokenizer has one."""

    def joined(self) -> Tokens:
        """Concatenate all documents, each preceded by `bos`; (tokens,)."""
        first = np.array([] if self.bos is None else [self.bos], dtype=np.uint32)
        return np.concatenate([part for ids in self.tokens for part in (first, ids)])

    def starts(self) -> NDArray[np.int64]:
        """Return the index in `joined()` at which each document starts (documents,)."""
        sizes = [len(ids) + (self.bos is not None) for ids in self.tokens]
        return np.cumsum([0, *sizes[:-1]], dtype=np.int64)

    def names_at(self, places: NDArray[np.int64]) -> list[str]:
        """Return the name of the document at each index in `joined()`."""
        found = np.searchsorted(self.starts(), places, side="right") - 1
        return [self.names[index] for index in found]


def read_documents(
    request: CellRequest,
    *,
    at_least: int = 1,
    at_most: int | None = None,
    max_tokens: int | None = None,
) -> Documents:
    """Read and tokenise the first documents of the task's data set (`OverText.documents`)."""
    chosen: list[tuple[str, Tokens]] = []
    total = longest = 0
    for document, ids in _source(request).documents():
        longest = max(longest, len(ids))
        if len(ids) >= at_least:
            chosen.append((document, ids[: None if max_tokens is None else max_tokens - total]))
            total += len(ids)
        if len(chosen) == at_most or (max_tokens is not None and total >= max_tokens):
            break
    if not chosen:
        raise UnavailableError(
            f"data set {request.task!r}",
            f"{longest} tokens in the longest document",
            f"a document of at least {at_least} tokens",
            "use a shorter length or min_document_tokens, or longer documents",
        )
    names, tokens = zip(*chosen, strict=True)
    return Documents(names, tokens, separator_of(request.tokenizer))


def held_out_documents(request: CellRequest, *, at_least: int, max_tokens: int | None) -> Documents:
    """Return the documents of the task's held-out domain, with names such as "prose-0".

    The last document may be cut. Raises UnavailableError if all have fewer than `at_least` tokens.
    """
    stream = request.held_out.stream(request.task)[:max_tokens]
    starts = request.held_out.document_starts(request.task)
    bos = separator_of(request.tokenizer)
    parts = np.split(stream, starts[(starts > 0) & (starts < len(stream))])
    tokens = [part[1:] if bos is not None and part[:1] == bos else part for part in parts]
    chosen = [index for index, ids in enumerate(tokens) if len(ids) >= at_least]
    if not chosen:
        raise UnavailableError(
            f"domain {request.task!r}",
            f"{max(map(len, tokens))} tokens in the longest held-out document",
            f"a document of at least {at_least} tokens",
            "use a shorter length or min_document_tokens, or a corpus with longer documents",
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
    """Estimate the tokens of each document that `read_documents` would return, from its bytes."""
    tex, data_set = name == "proof_pile", DATA_SETS[name]
    ratio = base_model.bytes_per_tex_token if tex else base_model.bytes_per_token
    least = at_least * ratio

    def read() -> list[int]:
        sizes = (len(text.encode()) for _, text in _texts(data_set, folders))
        return list(islice((size for size in sizes if size >= least), at_most))

    what = f"documents 1: bytes in {name}, {least} or more, of {at_most}"
    return [round(size / ratio) for size in data_set.fact(what, folders, read)]


def _texts(data_set: DataSet, folders: Mapping[str, Path]) -> Iterator[tuple[str, str]]:
    for file in data_set.files(folders):
        if file.suffix in (".txt", ".tex"):
            yield file.name, _book(file) if data_set.name == "pg19" else read_text(file)
            continue
        for number, row in enumerate(read_rows(file, ()), start=1):
            text = next((row[key] for key in _COLUMNS if isinstance(row.get(key), str)), None)
            if text is None:
                raise DataError(
                    f"{file}: row {number}",
                    f"no text in {' or '.join(_COLUMNS)}, only"
                    f" {', '.join(sorted(row)) or 'nothing'}",
                    "the document's text, because lce tokenises it for each base model",
                    "use the published files unchanged",
                )
            yield f"{file.name}:{number}", text


def _book(file: Path) -> str:
    declared = _LATIN.search(file.read_bytes()[:4096])
    text = read_text(file, declared.group(1).decode() if declared else "utf-8")
    start, end = _START.search(text), _END.search(text)
    return text[start.end() if start else 0 : end.start() if end else None].strip() + "\n"


class _Source:
    """Documents of a data set. Each is tokenised when first needed, and kept for later callers."""

    def __init__(self, request: CellRequest) -> None:
        self._tokenizer = request.tokenizer
        self._texts = _texts(DATA_SETS[request.task], request.data_folders)
        self._done: list[tuple[str, Tokens]] = []
        self._error: DataError | None = None

    def documents(self) -> Iterator[tuple[str, Tokens]]:
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


def _source(request: CellRequest) -> _Source:
    backend = getattr(request.tokenizer, "backend_tokenizer", None)
    # Without a backend there is no cache key that distinguishes two tokenizers.
    if backend is None:
        return _Source(request)
    seen = DATA_SETS[request.task].seen(request.data_folders)
    key = (request.task, seen, hashlib.sha256(backend.to_str().encode()).hexdigest())
    if key not in _SOURCES:
        while len(_SOURCES) >= _KEPT_SOURCES:
            _SOURCES.pop(next(iter(_SOURCES)))
        _SOURCES[key] = _Source(request)
    return _SOURCES[key]
