"""Open the documents of a split as token ids: read token shards, or tokenise the text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from lce_core.corpora import Corpus, Document, Split
from lce_core.data.token_shards import TokenShards
from lce_core.data.tokenised import TokenPool, hash_key, tokenise
from lce_core.progress import Report

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

LISTING = "documents.parquet"


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

    Args:
      vocabulary: number of ids; every id is smaller.
      shards: output of `write_shards` for the corpus. None tokenises the split into a temporary
        file and lists its documents in `out`.
      out: existing folder for the temporary file and the list.
      report: called with the progress of tokenising, as in `tokenise`.
    """
    if shards is not None:
        yield TokenShards.open(shards, split)
        return
    scratch, copies = out / "tokens.scratch", Copies()
    documents = corpus.documents(split, folders)
    if split == "train" and corpus.leaves_out_copies:
        documents = copies.emptied(documents, corpus.documents("held_out", folders))
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
        yield replace(pool, num_copies=copies.count)
    finally:
        scratch.unlink(missing_ok=True)


class Copies:
    """Training documents whose text equals that of a held-out document."""

    count = 0

    def emptied(
        self, training: Iterable[Document], held_out: Iterable[Document]
    ) -> Iterator[Document]:
        """Yield the training documents, copies without their text; increase `count` by copies."""
        texts = {hash_key(document.text) for document in held_out if document.text}
        for document in training:
            if hash_key(document.text) in texts:
                self.count += 1
                document = replace(document, text="")
            yield document


def listings(out: Path) -> tuple[str, ...]:
    """Return the names of the Parquet files in `out` that list documents."""
    return (*((LISTING,) if (out / LISTING).is_file() else ()), "order.parquet")
