"""Pack tokens for training: rows of one length in memory-mapped files.

As in LCEG's training, the drawn documents are joined, and the result is cut into rows; or whole
documents are placed from the longest to the shortest, each in the row that it leaves the least
space in, and rows are padded. A document that fits into none of the rows is left out.

A folder of rows contains rows.bin, weights.bin (if tokens differ in loss weight), order.parquet
with the start of each document, documents.parquet with their names (missing if the corpus has token
shards, which name the documents), and manifest.json.

Source: LCEG, arXiv:2409.12181, section 4 and appendix 9.3; Fu et al. 2024, arXiv:2402.10171. Best
fit: Ding et al. 2024, arXiv:2404.10830, section 3; OLMo 3 (arXiv:2512.13961) packs in this way.
"""

from __future__ import annotations

import hashlib
import time
from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from heapq import heappop, heappush
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from lce_core.corpora import Corpus
from lce_core.data import tokenised
from lce_core.data.sampling import Draw, draw_documents
from lce_core.data.shards import listings, token_pool
from lce_core.data.tokenised import MANIFEST, TokenArray, TokenPool
from lce_core.errors import SpecError
from lce_core.models import LanguageModel
from lce_core.progress import Report
from lce_core.recipe import Packing, Upsampling
from lce_core.store.records import write_json

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Block = tuple[NDArray[np.uint32], NDArray[np.uint8]]
"""Tokens and loss weights of successive rows, (rows, row_length) each."""

Pieces = dict[str, NDArray[np.int64]]
"""Documents, or parts of documents that are longer than a row, in the order of rows: the columns of
order.parquet, (pieces,) each. `document` and `pass` are those of the draw. `offset` is the first
token of the document in each piece, `start` the piece's first token in all rows, ascending."""
BLOCK_TOKENS = 1 << 20
"""Tokens packed at a time. A change of this number changes the rows of models that insert tokens,
because `prepare_rows` gets another random seed for each block."""
_PREPARATION = 1 << 20
"""Part of the seed of `prepare_rows`. It differs from every domain index, which the seeds for
drawing documents contain in its place, so the random numbers are independent."""


@dataclass(frozen=True, eq=False)
class PackedRows:
    """Training rows (token sequences of one length) in memory-mapped files."""

    row_length: int
    _folder: Path
    _tokens: TokenArray
    _weights: NDArray[np.uint8] | None

    @classmethod
    def open(cls, folder: Path) -> PackedRows:
        manifest = tokenised.read_manifest(folder)
        shape = (manifest["num_rows"], manifest["row_length"])
        tokens = _map(folder / "rows.bin", np.dtype(manifest["dtype"]), shape)
        weights = None
        if manifest["weighted"]:
            weights = _map(folder / "weights.bin", np.dtype(np.uint8), shape)
        return cls(shape[1], folder, tokens, weights)

    def __len__(self) -> int:
        return len(self._tokens)

    def read(self, indices: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return token ids (n, row_length) and loss weights (n, row_length) of the given rows.

        weights[:, i] is the loss weight of predicting token i; token 0 has weight 0.
        """
        tokens = self._tokens[indices].astype(np.int64)
        if self._weights is None:
            weights = np.ones(tokens.shape, dtype=np.float32)
        else:
            weights = self._weights[indices].astype(np.float32)
        weights[:, 0] = 0
        return tokens, weights

    def document_bounds(self, indices: NDArray[np.int64]) -> NDArray[np.int32]:
        """Return where documents of the given rows start, as cumulative lengths (documents + 1,).

        Tokens count from the first one of the first given row. Each row starts a document, and so
        does its padding.
        """
        length = self.row_length
        bounds = [np.array([len(indices) * length])]
        for number, first in enumerate((indices * length).tolist()):
            inside = slice(*np.searchsorted(self._starts, (first + 1, first + length)))
            bounds += [np.array([number * length]), self._starts[inside] - first + number * length]
        return np.sort(np.concatenate(bounds)).astype(np.int32)

    @cached_property
    def _starts(self) -> NDArray[np.int64]:
        order = pq.read_table(self._folder / "order.parquet")
        starts: NDArray[np.int64] = order["start"].to_numpy()
        if "tokens" not in order.column_names:
            return starts
        return np.union1d(starts, starts + order["tokens"].to_numpy())


def pack_rows(
    corpus: Corpus,
    base_model: LanguageModel,
    tokenizer: PreTrainedTokenizerBase,
    *,
    row_length: int,
    num_rows: int,
    upsampling: Upsampling,
    packing: Packing = "concatenated",
    seed: int,
    folders: Mapping[str, Path],
    out: Path,
    report: Report,
    shards: Path | None = None,
) -> dict[str, Any]:
    """Draw documents of the training split and pack them into `num_rows` rows in `out`.

    The written bytes depend only on corpus, tokenizer, model and the arguments up to `seed`.
    Best-fit packing leaves out as many of the drawn tokens as it pads.
    """
    if row_length < 2 or num_rows < 1:
        raise SpecError(
            "packing",
            f"{num_rows} rows of {row_length} tokens",
            "at least one row of two tokens, because the first token of a row is never predicted",
            "raise the number of tokens or the row length",
        )
    vocabulary = max(base_model.shape.vocab_size, len(tokenizer))
    with token_pool(
        corpus, "train", tokenizer, base_model.max_ids, folders, shards, out, report
    ) as pool:
        draw = draw_documents(
            pool.domains,
            pool.lengths,
            corpus.domains(),
            budget=num_rows * row_length,
            upsampling=upsampling,
            seed=seed,
        )
        padding = tokenised.separator_of(tokenizer) or 0
        facts: dict[str, Any] = {"domains": draw.statistics}
        if packing == "best_fit":
            order = fit_pieces(draw, row_length, num_rows)
            is_long = pool.lengths >= upsampling.long_document_tokens
            facts = _best_fit_facts(draw, order, pool.domains, is_long, row_length)
            rows = _filled(pool, order, base_model, seed, (num_rows, row_length), padding)
            is_weighted = True
        else:
            starts = np.cumsum(draw.tokens) - draw.tokens
            order = {"document": draw.documents, "pass": draw.passes, "start": starts}
            rows = (
                base_model.prepare_rows(block, np.random.default_rng([seed, _PREPARATION, number]))
                for number, block in enumerate(_cut(pool, draw, row_length))
            )
            is_weighted = type(base_model).prepare_rows is not LanguageModel.prepare_rows
        pq.write_table(pa.table(order), out / "order.parquet")
        names = ("rows.bin", "weights.bin") if is_weighted else ("rows.bin",)
        files = _write_rows(rows, num_rows, names, tokenised.token_dtype(vocabulary), out, report)
    manifest: dict[str, Any] = {
        "row_length": row_length,
        "num_rows": num_rows,
        "tokens": num_rows * row_length,
        "dtype": tokenised.token_dtype(vocabulary).name,
        "weighted": "weights.bin" in files,
        "seed": seed,
        "upsampling": upsampling.model_dump(mode="json", exclude_none=True),
        "separator": tokenised.separator_of(tokenizer),
        "drawn_documents": len(draw.documents),
        **facts,
        "sha256": files | tokenised.file_digests(out, *listings(out)),
    }
    if pool.num_copies:
        manifest["left_out_copies"] = pool.num_copies
    write_json(out / MANIFEST, manifest)
    return manifest


def _cut(pool: TokenPool, draw: Draw, row_length: int) -> Iterator[NDArray[np.uint32]]:
    block_tokens = max(1, BLOCK_TOKENS // row_length) * row_length
    left = int(draw.tokens.sum())
    block = np.empty(min(block_tokens, left), dtype=np.uint32)
    filled = 0
    for document, length in zip(draw.documents.tolist(), draw.tokens.tolist(), strict=True):
        tokens = pool.document(document)[:length]
        while len(tokens):
            take = min(len(tokens), len(block) - filled)
            block[filled : filled + take] = tokens[:take]
            filled, tokens = filled + take, tokens[take:]
            if filled == len(block):
                yield block.reshape(-1, row_length)
                left -= filled
                block, filled = np.empty(min(block_tokens, left), dtype=np.uint32), 0


def _filled(
    pool: TokenPool,
    order: Pieces,
    base_model: LanguageModel,
    seed: int,
    shape: tuple[int, int],
    padding: int,
) -> Iterator[Block]:
    # The model prepares each piece like a row of its own.
    num_rows, row_length = shape
    together = max(1, BLOCK_TOKENS // row_length)
    for first in range(0, num_rows, together):
        start, stop = (row * row_length for row in (first, min(first + together, num_rows)))
        tokens = np.full(stop - start, padding, dtype=np.uint32)
        weights = np.zeros(stop - start, dtype=np.uint8)
        for piece in range(*np.searchsorted(order["start"], (start, stop))):
            document, offset, begin, number = (
                int(order[name][piece]) for name in ("document", "offset", "start", "tokens")
            )
            text = pool.document(document)[offset : offset + number].astype(np.uint32)
            rng = np.random.default_rng([seed, _PREPARATION, piece])
            place = slice(begin - start, begin - start + number)
            rows, own = base_model.prepare_rows(text[None], rng)
            tokens[place], weights[place] = rows[0], own[0]
        yield tokens.reshape(-1, row_length), weights.reshape(-1, row_length)


def fit_pieces(draw: Draw, row_length: int, num_rows: int) -> Pieces:
    """Place a draw of `num_rows * row_length` tokens; each row gets at least one piece.

    Within a row, pieces keep the order of the draw.
    """
    counts = -(-draw.tokens // row_length)
    drawn = np.repeat(np.arange(len(counts)), counts)
    offsets = row_length * (np.arange(len(drawn)) - np.repeat(np.cumsum(counts) - counts, counts))
    tokens = np.minimum(draw.tokens[drawn] - offsets, row_length)
    rows = best_fit(tokens, row_length, num_rows)
    order = np.argsort(rows, kind="stable")[np.count_nonzero(rows < 0) :]
    offsets, tokens, rows = (one[order] for one in (offsets, tokens, rows))
    ends = np.cumsum(tokens)
    before = np.searchsorted(rows, rows)  # first piece of each piece's row
    starts = rows * row_length + ends - tokens - (ends - tokens)[before]
    documents, passes = (one[drawn[order]] for one in (draw.documents, draw.passes))
    columns = {"document": documents, "pass": passes, "offset": offsets}
    return {**columns, "start": starts, "tokens": tokens}


def best_fit(lengths: NDArray[np.int64], space: int, num_rows: int) -> NDArray[np.int64]:
    """Return the row of each document (documents,), or -1 if it fits into none of `num_rows`.

    Of rows with equal space, the one that was opened first is chosen. Lengths are at most `space`.
    """
    rows = np.full(len(lengths), -1, dtype=np.int64)
    spaces: list[int] = []  # spaces that some open row has, ascending
    with_space: dict[int, list[int]] = {}  # heaps of rows
    opened = 0
    for document in np.argsort(-lengths, kind="stable").tolist():
        length = int(lengths[document])
        place = bisect_left(spaces, length)
        if place < len(spaces):
            left = spaces[place]
            row = heappop(with_space[left])
            if not with_space[left]:
                del with_space[left], spaces[place]
        elif opened < num_rows:
            row, left, opened = opened, space, opened + 1
        else:
            continue
        rows[document] = row
        left -= length
        if left:
            if left not in with_space:
                with_space[left] = []
                insort(spaces, left)
            heappush(with_space[left], row)
    return rows


def _best_fit_facts(
    draw: Draw,
    order: Pieces,
    domains: NDArray[np.int64],
    is_long: NDArray[np.bool_],
    row_length: int,
) -> dict[str, Any]:
    """Return what best-fit packing did; `domains` and `is_long` are of each document."""
    documents, tokens = order["document"], order["tokens"]
    counted = ("packed_tokens", tokens), ("packed_long_tokens", tokens * is_long[documents])
    packed = {
        name: np.bincount(domains[documents], number, len(draw.statistics)).astype(int).tolist()
        for name, number in counted
    }
    return {
        "packing": "best_fit",
        "padding_tokens": int(draw.tokens.sum() - tokens.sum()),
        "cut_documents": int((draw.tokens > row_length).sum()),
        "domains": [
            {**entry, **{name: packed[name][domain] for name in packed}}
            for domain, entry in enumerate(draw.statistics)
        ],
    }


def _write_rows(
    blocks: Iterator[Block],
    num_rows: int,
    names: tuple[str, ...],
    dtype: np.dtype[Any],
    out: Path,
    report: Report,
) -> dict[str, str]:
    """Write rows.bin and, if `names` has it, weights.bin; return their sha256."""
    digests = {name: hashlib.sha256() for name in names}
    done, began = 0, time.monotonic()
    with ExitStack() as stack:
        # No memory map: on a full disk a write raises an error, and a memory map kills the process.
        files = {name: stack.enter_context((out / name).open("wb")) for name in names}
        for rows, weights in blocks:
            for name, array in zip(names, (rows.astype(dtype), weights), strict=False):
                data = array.tobytes()
                digests[name].update(data)
                files[name].write(data)
            done += len(rows)
            speed = round(done * rows.shape[1] / max(time.monotonic() - began, 1e-9))
            event = {"stage": "packing", "done": done, "total": num_rows}
            report({**event, "tokens_per_second": speed})
    return {name: digest.hexdigest() for name, digest in digests.items()}


def _map(file: Path, dtype: np.dtype[Any], shape: tuple[int, int]) -> Any:
    tokenised.require_size(file, shape[0] * shape[1] * dtype.itemsize)
    return np.memmap(file, dtype=dtype, mode="r", shape=shape)
