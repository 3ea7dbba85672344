"""Negative log-likelihood of given tokens, with one code path for all methods.

Hidden states become losses block by block (`lce_core.evaluation.cross_entropy`), because the logits
of 65,536 tokens and a vocabulary of 32,000 would take 8 GB in fp32.
"""

import numpy as np
import torch
from numpy.typing import NDArray

from lce_core.errors import NonFiniteError, SpecError
from lce_core.evaluation.cross_entropy import Head, token_scores
from lce_core.evaluation.passes import texts_together
from lce_core.evaluation.windows import TokenScores, Windows
from lce_core.extension.extended_model import ExtendedModel
from lce_core.progress import Progress, no_progress


def window_scores(
    model: ExtendedModel,
    windows: NDArray[np.integer],
    *,
    following: NDArray[np.integer] | None = None,
    batch_tokens: int,
    report: Progress = no_progress,
) -> TokenScores:
    """Score the tokens of windows (n, L), L >= 2, given each window's earlier tokens.

    `following` is the first token after each window (n,), -1 for none; None if no window has one.
    `batch_tokens` limits the tokens of a forward pass, which always has at least one window; in
    half precision it has exactly one.
    """
    num_windows, length = windows.shape
    if length < 2:
        raise SpecError(
            "window_scores",
            f"windows of {length} tokens",
            "windows of at least 2 tokens, because the first token of a window is not scored",
            "use longer windows",
        )
    if following is None:
        following = np.full(num_windows, -1)
    nll = np.empty((num_windows, length - 1), dtype=np.float32)
    hits = np.empty((num_windows, length), dtype=np.bool_)
    rows = texts_together(model, length, batch_tokens)
    model.begin_request(length)
    for start in range(0, num_windows, rows):
        part = slice(start, start + rows)
        texts = np.column_stack([windows[part], following[part]]).astype(np.int64)
        nll[part], hits[part] = _batch_scores(model, torch.from_numpy(texts))
        report(min(start + rows, num_windows), num_windows)
    bad = np.argwhere(~np.isfinite(nll))
    if len(bad):
        window, position = (int(index) for index in bad[0])
        raise NonFiniteError(
            f"window {window}, token {position + 1}",
            f"a loss of {nll[window, position]} ({len(bad)} of {nll.size} are NaN or infinite)",
            "finite losses",
            "check the checkpoint, or evaluate with precision: fp32",
        )
    return TokenScores(nll, hits)


def score_windows(
    model: ExtendedModel, windows: Windows, batch_tokens: int, report: Progress
) -> TokenScores:
    """Score windows of a stream, and the token after each of them."""
    ids, after = windows.ids(), windows.following()
    return window_scores(model, ids, following=after, batch_tokens=batch_tokens, report=report)


def _batch_scores(
    model: ExtendedModel, texts: torch.Tensor
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Return losses (b, L - 1) and hits (b, L) of texts (b, L + 1): windows plus the next token."""
    head = Head.of(model.model)
    texts = texts.to(model.model.device)
    inside, behind = texts[:, 1:-1], texts[:, -1]
    own = model.inserter.token if model.inserter else None
    with torch.no_grad():
        hidden = model.hidden_states(texts[:, :-1].contiguous())
        scored = hidden[:, :-1].reshape(-1, hidden.shape[-1])
        nll, hits = token_scores(scored, head, inside.reshape(-1), no_text=own)
        # Scored separately: more rows in the matrix product could change the last bits of the
        # losses.
        _, last = token_scores(hidden[:, -1], head, behind.clamp(min=0), no_text=own)
    hits = torch.column_stack([hits.view(len(texts), -1), last & (behind >= 0)])
    return nll.view(len(texts), -1).cpu().numpy(), hits.cpu().numpy()
