"""Open the documents of a split as token ids: read token shards, or tokenise the text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from lce_core.corpora import Corpus, Split
from lce_core.data.token_shards import TokenShards
from lce_core.data.tokenised import TokenPool, tokenise
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
    scratch = out / "tokens.scratch"
    try:
        yield tokenise(
            corpus.documents(split, folders),
            corpus.domains(),
            tokenizer,
            vocabulary=vocabulary,
            tokens_file=scratch,
            index_file=out / LISTING,
            report=report,
        )
    finally:
        scratch.unlink(missing_ok=True)


def listings(out: Path) -> tuple[str, ...]:
    """Return the names of the Parquet files in `out` that list documents."""
    return (*((LISTING,) if (out / LISTING).is_file() else ()), "order.parquet")
