"""Measure tokenising, packing and reading of training rows, in tokens per CPU second.

The text is Python's standard library, as JSON lines in the format of SlimPajama. The script trains
a byte-level BPE with 32,000 ids on it, writes token shards, packs rows of 32,768 tokens, and reads
the rows as the trainer does. Before it prints, it checks that the rows are equal byte by
byte for one and for five workers, and that they contain the right documents. CPU seconds are summed
over threads, and depend little on other load.

    python perf/data.py [--tokens 100000000] [--out FILE.json]
"""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from measuring import Row, at_least, measure, timed
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from lce_core.corpora import CORPORA, StreamedCorpus
from lce_core.data.packing import PackedRows, pack_rows
from lce_core.data.shards import write_shards
from lce_core.data.token_shards import TokenShards
from lce_core.models import MODELS
from lce_core.recipe import Upsampling
from lce_core.training.schedule import rows_of_step

BASE = MODELS.parse({"name": "llama2_7b"}, "perf")
ROW_LENGTH = 32_768
ROWS_PER_STEP = 32
PUBLISHED = 7_000.0
"""Tokens per core and second from text to packed rows: 5 billion per hour on about 200 processes
(Fu et al., arXiv:2402.10171, README of FranxYao/Long-Context-Data-Engineering)."""


def rows(options: Namespace) -> Iterator[Row]:
    folder, number = options.folder, options.tokens // ROW_LENGTH
    tokenizer = trained(write_text(folder / "text"))

    def row(what: str, goal: float | None, action: Callable[[], int]) -> Row:
        _, cpu, tokens = timed(action)
        figures = {"what": what, "tokens": tokens, "CPU s": cpu, "tokens / CPU s": tokens / cpu}
        times = tokens / cpu / PUBLISHED
        return {**figures, "times the published": times, "limit": at_least(tokens / cpu, goal)}

    tokenise(folder, "warm", tokenizer, 1, 1)  # exclude imports of seconds
    first = row("tokenising", None, lambda: tokenise(folder, "one", tokenizer, 1))
    tokenise(folder, "five", tokenizer, 5)
    goal = 20 * PUBLISHED
    second = row("sampling and packing", goal, lambda: pack(folder, "one", tokenizer, number))
    pack(folder, "five", tokenizer, number)
    compare(folder)
    yield from (first, second)
    yield row("reading rows", 1e6, lambda: read(folder / "rows-one"))


def write_text(folder: Path) -> list[str]:
    """Write the standard library's training text, one document per line; return the texts."""
    folder.mkdir()
    found = list(CORPORA.parse({"name": "local_text"}, "perf").documents("train", {}))
    with (folder / "a.jsonl").open("w", encoding="utf-8") as out:
        for document in found:
            meta = {"redpajama_set_name": document.domain}
            out.write(json.dumps({"text": document.text, "meta": meta}) + "\n")
    return [document.text for document in found]


def trained(texts: list[str]) -> PreTrainedTokenizerFast:
    """Train a byte-level BPE with 32,000 ids, as many as Llama 2's tokenizer has."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=32_000,
        special_tokens=["<s>"],
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>")


def corpus(num_documents: int | None = None) -> StreamedCorpus:
    """Return the corpus plug-in for the text, or for its first `num_documents` documents."""
    found = CORPORA.parse(
        {
            "name": "streamed",
            "domain_field": "meta.redpajama_set_name",
            "domain_names": ["code", "docs", "prose"],
            "num_documents": num_documents,
        },
        "perf",
    )
    assert isinstance(found, StreamedCorpus)
    return found


def tokenise(
    folder: Path,
    name: str,
    tokenizer: PreTrainedTokenizerFast,
    workers: int,
    num_documents: int | None = None,
) -> int:
    """Return the number of tokens."""
    (folder / name).mkdir()
    manifest = write_shards(
        corpus(num_documents),
        tokenizer,
        folders={"text": folder / "text"},
        progress=folder / f"progress-{name}",
        out=folder / name,
        workers=workers,
        report=lambda event: None,
    )
    return int(manifest["tokens"])


def pack(folder: Path, shards: str, tokenizer: PreTrainedTokenizerFast, num_rows: int) -> int:
    """Return the number of tokens."""
    out = folder / f"rows-{shards}"
    out.mkdir()
    manifest = pack_rows(
        corpus(),
        BASE,
        tokenizer,
        row_length=ROW_LENGTH,
        num_rows=num_rows,
        upsampling=Upsampling(),
        seed=0,
        folders={},
        out=out,
        report=lambda event: None,
        shards=folder / shards,
    )
    return int(manifest["tokens"])


def compare(folder: Path) -> None:
    """Check that rows do not depend on the number of workers and contain the listed documents."""
    for name in ("rows.bin", "order.parquet", "manifest.json"):
        one, five = ((folder / f"rows-{n}" / name).read_bytes() for n in ("one", "five"))
        assert one == five, f"{name} depends on the number of workers"
    pool, rows = TokenShards.open(folder / "one", "train"), PackedRows.open(folder / "rows-one")
    order = pq.read_table(folder / "rows-one" / "order.parquet").slice(0, 200).to_pydict()
    flat = rows.read(np.arange(min(len(rows), 100)))[0].reshape(-1)
    for document, start in zip(order["document"], order["start"], strict=True):
        tokens = pool.document(document)[: max(0, flat.size - start)]
        assert np.array_equal(flat[start : start + tokens.size], tokens), "another document"


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
