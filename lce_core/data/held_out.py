"""Held-out text as benchmarks need it: one stream of tokens a domain, with document starts.

A folder holds stream-<n>.bin for the n-th domain, documents.parquet (the held-out split,
unless token shards list it), order.parquet (which document begins where) and manifest.json.
Documents are separated as in training rows, by the beginning-of-text token where the tokenizer has
one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from lce_core.corpora import Corpus
from lce_core.data.manifest import file_digests, read_manifest, write_manifest
from lce_core.data.pool import listings, token_pool
from lce_core.data.tokenised import separator_of, token_dtype
from lce_core.errors import DataError
from lce_core.reports import Report

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True, eq=False)
class HeldOutText:
    """Held-out documents of each domain, joined to one stream of tokens a domain."""

    domains: tuple[str, ...]
    _folder: Path
    _dtype: np.dtype[Any]

    @classmethod
    def open(cls, folder: Path) -> HeldOutText:
        """Opens what `pack_held_out` left in `folder`.

        Raises:
          StoreError: the manifest is missing or unreadable.
        """
        manifest = read_manifest(folder)
        domains = tuple(entry["domain"] for entry in manifest["domains"])
        return cls(domains, folder, np.dtype(manifest["dtype"]))

    def stream(self, domain: str) -> NDArray[np.uint32]:
        """All tokens of a domain, document after document (tokens,).

        Raises:
          DataError: no such domain.
        """
        tokens = np.fromfile(self._folder / _stream_file(self._number(domain)), dtype=self._dtype)
        return tokens.astype(np.uint32)

    def document_starts(self, domain: str) -> NDArray[np.int64]:
        """First token of each document in the domain's stream (documents,)."""
        self._number(domain)
        table = pq.read_table(self._folder / "order.parquet", filters=[("domain", "=", domain)])
        return np.asarray(table["start"].to_numpy(), dtype=np.int64)

    def _number(self, domain: str) -> int:
        if domain not in self.domains:
            raise DataError(
                "held-out text",
                f"domain {domain!r}",
                f"one of its domains: {', '.join(self.domains)}",
                "ask for one of these",
            )
        return self.domains.index(domain)


def pack_held_out(
    corpus: Corpus,
    tokenizer: PreTrainedTokenizerBase,
    *,
    tokens_per_domain: int,
    folders: Mapping[str, Path],
    out: Path,
    report: Report,
    shards: Path | None = None,
) -> dict[str, Any]:
    """Joins held-out documents to a stream of at most `tokens_per_domain` tokens a domain.

    Documents are taken in the order of a hash of their names, so that a part of the split is a
    fair sample of it; the last one is cut. With `shards` no text is read, as in `token_pool`.

    Returns:
      The manifest; its `tokens` of a domain fall short where the corpus has no more.

    Raises:
      UnavailableError: the corpus is not on this machine.
      DataError: text that cannot be used, or a domain without any held-out text.
    """
    vocabulary = len(tokenizer)
    parts: list[pa.Table] = []
    domains: list[dict[str, Any]] = []
    files: dict[str, str] = {}
    with token_pool(
        corpus, "held_out", tokenizer, vocabulary, folders, shards, out, report
    ) as pool:
        for number, domain in enumerate(corpus.domains()):
            members = np.flatnonzero((pool.domains == number) & (pool.lengths > 0))
            members = members[np.argsort(pool.keys[members], kind="stable")]
            starts = np.cumsum(pool.lengths[members]) - pool.lengths[members]
            members, starts = (a[starts < tokens_per_domain] for a in (members, starts))
            if not members.size:
                raise DataError(
                    f"{corpus.plugin_name}: domain {domain!r}",
                    "no held-out text",
                    "some held-out text in every domain",
                    "give it more documents, or raise held_out_percent",
                )
            taken = 0
            with (out / _stream_file(number)).open("wb") as stream:
                # One by one: each may be a file that is open as long as it is held.
                for index in members:
                    tokens = pool.document(int(index))[: tokens_per_domain - taken]
                    stream.write(np.ascontiguousarray(tokens).tobytes())
                    taken += len(tokens)
            files |= file_digests(out, _stream_file(number))
            parts.append(
                pa.table({"domain": [domain] * len(starts), "start": starts, "document": members})
            )
            domains.append({"domain": domain, "tokens": taken, "documents": len(starts)})
    pq.write_table(pa.concat_tables(parts), out / "order.parquet")
    manifest = {
        "dtype": token_dtype(vocabulary).name,
        "separator": separator_of(tokenizer),
        "domains": domains,
        "sha256": files | file_digests(out, *listings(out)),
    }
    write_manifest(out, manifest)
    return manifest


def _stream_file(domain: int) -> str:
    return f"stream-{domain}.bin"
