"""Measure tokenising, packing and reading of training rows, in tokens per CPU second.

The text is Python's standard library, as JSON lines in the format of SlimPajama. The script trains
a byte-level BPE with 32,000 ids on it, writes token shards, packs rows of 32,768 tokens, checks
that the rows contain the right documents, and reads them as the trainer does. CPU seconds are
summed over threads.
"""

import json
from argparse import Namespace
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from measuring import Row, at_least, measure, timed
from transformers import PreTrainedTokenizerFast

from lce_core.corpora import CORPORA
from lce_core.data.packing import PackedRows, pack_rows
from lce_core.data.shards import open_shards, write_shards
from lce_core.models import MODELS
from lce_core.recipe import Upsampling
from lce_core.training.schedule import rows_of_step
from tests.support.byte_level import byte_level

BASE = MODELS.parse({"name": "llama2_7b"}, "perf")
ROW_LENGTH = 32_768
ROWS_PER_STEP = 32
PUBLISHED = 7_000.0
"""Tokens per core and second from text to packed rows: 5 billion per hour on about 200 processes
(Fu et al., arXiv:2402.10171, README of FranxYao/Long-Context-Data-Engineering)."""
CORPUS = CORPORA.parse(
    {
        "name": "streamed",
        "domain_field": "meta.redpajama_set_name",
        "domain_names": ["code", "docs", "prose"],
    },
    "perf",
)


def rows(options: Namespace) -> Iterator[Row]:
    folder, number = options.folder, options.tokens // ROW_LENGTH
    # As many ids as Llama 2's tokenizer has.
    tokenizer = byte_level(write_text(folder / "text"), 32_000)

    def row(what: str, goal: float | None, action: Callable[[], int]) -> Row:
        _, cpu, tokens = timed(action)
        figures = {"what": what, "tokens": tokens, "CPU s": cpu, "tokens / CPU s": tokens / cpu}
        return {**figures, "limit": at_least(tokens / cpu, goal)}

    tokenise(folder, "warm", tokenizer)  # exclude imports of seconds
    yield row("tokenising", None, lambda: tokenise(folder, "shards", tokenizer))
    goal = 20 * PUBLISHED
    yield row("sampling and packing", goal, lambda: pack(folder, tokenizer, number))
    check(folder)
    yield row("reading rows", 1e6, lambda: read(folder / "rows"))


def write_text(folder: Path) -> list[str]:
    """Write the standard library's training text, one document per line; return the texts."""
    folder.mkdir()
    found = list(CORPORA.parse({"name": "local_text"}, "perf").documents("train", {}))
    with (folder / "a.jsonl").open("w", encoding="utf-8") as out:
        for document in found:
            meta = {"redpajama_set_name": document.domain}
            out.write(json.dumps({"text": document.text, "meta": meta}) + "\n")
    return [document.text for document in found]


def tokenise(folder: Path, name: str, tokenizer: PreTrainedTokenizerFast) -> int:
    """Return the number of tokens."""
    (folder / name).mkdir()
    manifest = write_shards(
        CORPUS,
        tokenizer,
        max_ids=len(tokenizer),
        folders={"text": folder / "text"},
        progress=folder / f"progress-{name}",
        out=folder / name,
        workers=1,
        report=lambda event: None,
    )
    return int(manifest["tokens"])


def pack(folder: Path, tokenizer: PreTrainedTokenizerFast, num_rows: int) -> int:
    """Return the number of tokens."""
    (folder / "rows").mkdir()
    manifest = pack_rows(
        CORPUS,
        BASE,
        tokenizer,
        row_length=ROW_LENGTH,
        num_rows=num_rows,
        upsampling=Upsampling(),
        seed=0,
        folders={},
        out=folder / "rows",
        report=lambda event: None,
        shards=folder / "shards",
    )
    return int(manifest["tokens"])


def check(folder: Path) -> None:
    """Check that rows contain the listed documents."""
    pool, rows = open_shards(folder / "shards", "train"), PackedRows.open(folder / "rows")
    order = pq.read_table(folder / "rows" / "order.parquet").slice(0, 200).to_pydict()
    flat = rows.read(np.arange(min(len(rows), 100)))[0].reshape(-1)
    for document, ends in zip(order["document"], pairwise(order["start"]), strict=False):
        tokens = flat[slice(*ends)]  # the last document of a domain is cut
        assert np.array_equal(tokens, pool.document(document)[: tokens.size]), "another document"


def read(folder: Path) -> int:
    """Read every row in the trainer's order; return the number of tokens."""
    rows, tokens = PackedRows.open(folder), 0
    per_step = min(ROWS_PER_STEP, len(rows))
    for step in range(len(rows) // per_step):
        for row in rows_of_step(0, step, per_step, len(rows)):
            ids, weights = rows.read(np.array([row]))
            tokens += ids.size
            assert weights.shape == ids.shape
    return tokens


if __name__ == "__main__":
    measure(__doc__, rows, tokens=100_000_000)
