"""Held-out text for benchmarks: one token stream per domain, with document starts.

A folder contains stream-<n>.bin with the tokens of domain n, order.parquet with the start of each
document, documents.parquet with the names of the documents, and manifest.json. If the corpus has
token shards, these name the documents and documents.parquet is missing. As in training rows, each
document starts with the token that `tokenised.separator_of` returns, if any.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from lce_core.corpora import Corpus
from lce_core.data import tokenised
from lce_core.data.shards import listings, token_pool
from lce_core.errors import DataError
from lce_core.progress import Report
from lce_core.store.records import write_json

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_MORE_TEXT = "add documents of this domain, or raise held_out_percent"
_MORE_VALIDATION_TEXT = (
    f"leave this domain out of `tune.domains`, lower evaluation.held_out_tokens, {_MORE_TEXT}"
)


@dataclass(frozen=True, eq=False)
class HeldOutText:
    """Held-out documents of each domain, joined to one token stream per domain."""

    domains: tuple[str, ...]
    _folder: Path
    _dtype: np.dtype[Any]

    @classmethod
    def open(cls, folder: Path) -> HeldOutText:
        manifest = tokenised.read_manifest(folder)
        domains = tuple(entry["domain"] for entry in manifest["domains"])
        return cls(domains, folder, np.dtype(manifest["dtype"]))

    def stream(self, domain: str) -> NDArray[np.uint32]:
        """Return the tokens of all documents of a domain, concatenated (tokens,)."""
        file = self._folder / _stream_file(self.domains.index(domain))
        return np.fromfile(file, dtype=self._dtype).astype(np.uint32)

    def document_starts(self, domain: str) -> NDArray[np.int64]:
        """Return the index of each document's first token in the domain's stream (documents,)."""
        table = pq.read_table(self._folder / "order.parquet", filters=[("domain", "=", domain)])
        return np.asarray(table["start"].to_numpy(), dtype=np.int64)


def pack_held_out(
    corpus: Corpus,
    tokenizer: PreTrainedTokenizerBase,
    *,
    max_ids: int,
    tokens_per_domain: int,
    document_tokens: int | None = None,
    after_tokens: int | None = None,
    needed: Collection[str] | None = None,
    folders: Mapping[str, Path],
    out: Path,
    report: Report,
    shards: Path | None = None,
) -> dict[str, Any]:
    """Join held-out documents to one stream of at most `tokens_per_domain` tokens per domain.

    Documents are ordered by a hash of their names, so that the start of a stream is a fair sample
    of the split. Each document is cut after `document_tokens` tokens, if given, and the last one at
    the limit of the domain. With `after_tokens`, the documents of the stream with this limit are
    left out, so that the two streams have no document in common. `needed` names the domains that
    must have text; by default all.
    """
    beyond, remedy = "", _MORE_TEXT
    if after_tokens is not None:
        beyond, remedy = f" beyond the {after_tokens:,} reported tokens", _MORE_VALIDATION_TEXT
    dtype, vocabulary = tokenised.token_dtype(len(tokenizer)), min(len(tokenizer), max_ids)
    parts: list[pa.Table] = []
    domains: list[dict[str, Any]] = []
    files: dict[str, str] = {}
    with token_pool(
        corpus, "held_out", tokenizer, vocabulary, folders, shards, out, report
    ) as pool:
        for number, domain in enumerate(corpus.domains()):
            members = np.flatnonzero((pool.domains == number) & (pool.lengths > 0))
            members = members[np.argsort(pool.keys[members], kind="stable")]
            lengths = pool.lengths[members]
            if document_tokens is not None:
                lengths = np.minimum(lengths, document_tokens)
            starts = np.cumsum(lengths) - lengths
            if after_tokens is not None:
                members, lengths = (a[starts >= after_tokens] for a in (members, lengths))
                starts = np.cumsum(lengths) - lengths
            members, lengths, starts = (
                a[starts < tokens_per_domain] for a in (members, lengths, starts)
            )
            if not members.size and domain in (corpus.domains() if needed is None else needed):
                raise DataError(
                    f"{corpus.plugin_name}: domain {domain!r}",
                    f"no held-out text{beyond}",
                    "some held-out text in every domain",
                    remedy,
                )
            taken = 0
            with (out / _stream_file(number)).open("wb") as stream:
                # Read documents one at a time: each may be a memory map that stays open while it is
                # referenced.
                for index, length in zip(members, lengths, strict=True):
                    tokens = pool.document(int(index))[: min(length, tokens_per_domain - taken)]
                    stream.write(np.ascontiguousarray(tokens, dtype=dtype).tobytes())
                    taken += len(tokens)
            files |= tokenised.file_digests(out, _stream_file(number))
            parts.append(
                pa.table(
                    {
                        "domain": pa.array([domain] * len(starts), pa.string()),
                        "start": starts,
                        "document": members,
                    }
                )
            )
            domains.append({"domain": domain, "tokens": taken, "documents": len(starts)})
    pq.write_table(pa.concat_tables(parts), out / "order.parquet")
    manifest = {
        "dtype": dtype.name,
        "separator": tokenised.separator_of(tokenizer),
        "domains": domains,
        "sha256": files | tokenised.file_digests(out, *listings(out)),
    }
    write_json(out / tokenised.MANIFEST, manifest)
    return manifest


def require_window(validation: Path, needed: Collection[str] | None, tokens: int) -> None:
    """Raise DataError if the validation text of a domain is shorter than one window."""
    for entry in tokenised.read_manifest(validation)["domains"]:
        domain = entry["domain"]
        if entry["tokens"] < tokens and (needed is None or domain in needed):
            raise DataError(
                f"validation text of domain {domain!r}",
                f"{entry['tokens']:,} tokens",
                f"at least {tokens:,} tokens, one window at the target context",
                _MORE_VALIDATION_TEXT,
            )


def _stream_file(domain: int) -> str:
    return f"stream-{domain}.bin"
