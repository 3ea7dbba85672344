"""LongPPL: perplexity of the tokens that need a long context, from the losses that cells store.

A token is a key token if a long context raises its probability a lot and makes it likely, under an
evaluator model:

  log p(x | long) - log p(x | short) > ALPHA   and   log p(x | long) > BETA

LongPPL = exp(-mean over key tokens of log p(x | context)) of the evaluated method. The published
variant takes Llama-3.1-8B (or a 72B model) over the whole text as its evaluator. Here the evaluator
is the study's own base model, unmodified and within its trained context, so key tokens never need
more context than the trained one. Values are comparable between methods and lengths of one base
model, but not with published values.

The losses come from cells of the benchmark `perplexity`, so LongPPL needs no forward pass:

  long    the unmodified base model at its longest length within the trained context
  short   the unmodified base model at its longest length of at most half of that, with a stride
          below the length. In the last `stride` tokens of a window, a token has length - stride to
          length - 1 tokens before it. The authors' windows have length 5,120 and stride 1,024
  method  any method, at the length of `long` or a larger one

Of each window only the last `stride` tokens count, so every token of the text counts once. A token
counts only if its long context contains its short context, and the method's context contains its
long context.

Source: Fang et al. 2024 (arXiv:2410.23771); constants as in github.com/PKU-ML/LongPPL@1decd2a.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from catalog import grouped
from catalog.holdings import Holdings
from lce_core.statistics.clustered import clustered_mean
from lce_core.statistics.contrasts import FEWEST_CLUSTERS
from lce_core.store.cell_tables import ARRAYS_FILE, SAMPLES_FILE
from lce_core.store.identity import canonical_json

ALPHA = 2.0
"""Minimum gain of a key token's log-probability by the long context, in nats."""
BETA = -2.0
"""Minimum log-probability of a key token with the long context, in nats."""
_SETTINGS = ("stride", "last", "store_nll")
"""Parameters of `perplexity` that do not change the text."""


@dataclass(frozen=True)
class TokenLosses:
    """Losses of a text: one element per token, up to the end of the last window."""

    nll: NDArray[np.float64]
    """NLL in nats; NaN for tokens that no window counts."""
    context: NDArray[np.int64]
    """Number of tokens before the token in its window."""
    window: NDArray[np.int64]
    """Index of the token's window."""


def token_losses(starts: NDArray[np.int64], nll: NDArray[Any]) -> TokenLosses:
    """Return the losses of the last `stride` tokens of each window, by token of the text.

    Args:
      starts: index in the text of each window's first token (windows,), a constant stride apart.
      nll: NLL in nats of tokens 1..L-1 of each window (windows, L - 1).
    """
    length = nll.shape[1] + 1
    tail = min(stride_of(starts, length), length - 1)
    offsets = np.arange(length - tail, length)
    places = (starts[:, None] + offsets).ravel()
    found = TokenLosses(
        np.full(starts[-1] + length, np.nan), *np.full((2, starts[-1] + length), -1)
    )
    found.nll[places] = nll[:, -tail:].ravel()
    found.context[places] = np.tile(offsets, len(starts))
    found.window[places] = np.repeat(np.arange(len(starts)), tail)
    return found


def stride_of(starts: NDArray[np.int64], length: int) -> int:
    return int(starts[1] - starts[0]) if len(starts) > 1 else length


def key_tokens(
    long: TokenLosses, short: TokenLosses, *, alpha: float = ALPHA, beta: float = BETA
) -> NDArray[np.int64]:
    """Return the indices in the text of the key tokens, of two passes of the evaluator."""
    size = min(len(long.nll), len(short.nll))
    with_long, with_short = long.nll[:size], short.nll[:size]
    # Comparisons with NaN are False.
    key = (with_short - with_long > alpha) & (-with_long > beta)
    return np.flatnonzero(key & (short.context[:size] <= long.context[:size]))


def long_perplexities(plans: list[dict[str, Any]], holdings: Holdings) -> Iterator[dict[str, Any]]:
    """Yield the rows of `store.long_perplexity`, one per cell that has key tokens."""
    for plan in plans:
        known = [
            cell
            for cell in plan["cells"]
            if cell["benchmark"] == "perplexity"
            and cell["cell"]
            and (record := holdings.intact(cell["cell"]))
            and ARRAYS_FILE in record.files
        ]
        for cells in grouped(known, lambda cell: _text(cell, holdings)).values():
            trained = plan["base_contexts"].get(cells[0]["base_model"]) or 0
            try:
                rows = list(_rows(cells, trained, holdings))
            except (OSError, ValueError, SafetensorError):
                continue  # arrays that cannot be read must not break the catalog
            yield from ({"study": plan["study"], **row} for row in rows)


def _text(cell: Mapping[str, Any], holdings: Holdings) -> str:
    """Return a key that is equal for cells of one base model and seed over the same text."""
    spec = holdings.records[cell["cell"]].spec
    text = {name: value for name, value in spec["benchmark"].items() if name not in _SETTINGS}
    return canonical_json([cell["base_model"], cell["seed"], cell["task"], spec.get("data"), text])


def _rows(
    cells: list[dict[str, Any]], trained: int, holdings: Holdings
) -> Iterator[dict[str, Any]]:
    base = [cell for cell in cells if cell["method"] == "none" and cell["frozen"]]
    by_length = {cell["eval_length"]: cell for cell in base if cell["eval_length"] <= trained}
    at = max(by_length, default=0)
    shorter = [
        length
        for length, cell in by_length.items()
        if length <= at / 2 and stride_of(_array(cell, "start", holdings), length) < length
    ]
    if not shorter:
        return
    short = by_length[max(shorter)]
    long_losses, short_losses = (_losses(cell, holdings) for cell in (by_length[at], short))
    keys = key_tokens(long_losses, short_losses)
    stride = stride_of(_array(short, "start", holdings), short["eval_length"])
    for cell in cells:
        if cell["eval_length"] >= at and len(keys):
            yield {
                **cell,
                **_score(cell, keys, long_losses, holdings),
                "evaluator_tokens": at,
                "short_tokens": short["eval_length"] - stride,
            }


def _score(
    cell: Mapping[str, Any], keys: NDArray[np.int64], long: TokenLosses, holdings: Holdings
) -> dict[str, Any]:
    own = _losses(cell, holdings)
    keys = keys[keys < len(own.nll)]
    keys = keys[own.context[keys] >= long.context[keys]]
    if not len(keys):
        return {"value": None, "ci_low": None, "ci_high": None, "num_key_tokens": 0}
    table = pq.read_table(holdings.file(cell["cell"], SAMPLES_FILE), columns=["cluster"])
    clusters = np.array(table["cluster"].to_pylist(), dtype=object)[own.window[keys]].tolist()
    mean = clustered_mean(own.nll[keys], clusters)
    known = mean.num_clusters >= FEWEST_CLUSTERS
    return {
        "value": math.exp(mean.value),
        "ci_low": math.exp(mean.low) if known and mean.low is not None else None,
        "ci_high": math.exp(mean.high) if known and mean.high is not None else None,
        "num_key_tokens": len(keys),
    }


def _losses(cell: Mapping[str, Any], holdings: Holdings) -> TokenLosses:
    starts = _array(cell, "start", holdings)
    nll = _array(cell, "nll", holdings).astype(np.float64)
    return token_losses(starts, nll.reshape(len(starts), -1))


def _array(cell: Mapping[str, Any], name: str, holdings: Holdings) -> NDArray[Any]:
    with safe_open(holdings.file(cell["cell"], ARRAYS_FILE), framework="numpy") as file:
        found: NDArray[Any] = file.get_tensor(name)
        return found
