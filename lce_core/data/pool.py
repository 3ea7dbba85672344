"""Where the documents of a split come from: token shards, or text that is tokenised for one use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from lce_core.corpora import Corpus, Split
from lce_core.data.token_shards import TokenShards
from lce_core.data.tokenised import TokenPool, tokenise
from lce_core.reports import Report

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
    """The split's tokens for as long as they are needed.

    Args:
      corpus: where the text comes from.
      split: the part of it.
      tokenizer: turns text into ids.
      vocabulary: ids lie below this.
      folders: of data, for the corpus.
      shards: what `write_shards` left of the corpus, which lists its documents; None to tokenise
        the split here, of which only the listing stays in `out`.
      out: existing folder to write into.
      report: told how far tokenising is.
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
    """Names of the files in `out` that say which documents there are and where they stand."""
    return (*((LISTING,) if (out / LISTING).is_file() else ()), "order.parquet")
