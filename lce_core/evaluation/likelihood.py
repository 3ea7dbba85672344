"""Negative log-likelihood of given tokens, for all methods through one code path.

The decoder's hidden states are turned into losses block by block
(`lce_core.evaluation.cross_entropy`), so the (windows, length, vocabulary) logits never exist: at
64k tokens and a vocabulary of 32,000 they would take 8 GB. Windows of one call have one length, so
there is no padding and no attention mask.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from lce_core.errors import NonFiniteError, SpecError
from lce_core.evaluation.cross_entropy import token_nll
from lce_core.evaluation.passes import texts_together
from lce_core.reports import Progress, no_progress

if TYPE_CHECKING:
    from lce_core.extension.extended_model import ExtendedModel


def window_nll(
    model: ExtendedModel,
    windows: NDArray[np.integer],
    *,
    batch_tokens: int,
    report: Progress = no_progress,
) -> NDArray[np.float32]:
    """NLL in nats of tokens 1..L-1 of each window, given the tokens before it in that window.

    Args:
      model: the extended model; its frequencies are fixed for a request of L tokens.
      windows: token ids (n, L), L >= 2.
      batch_tokens: upper limit of tokens in one forward pass; one window at least, and one at most
        in half precision.
      report: called with (windows done, windows in all) after each pass.

    Returns:
      float32 (n, L - 1).

    Raises:
      SpecError: windows of fewer than two tokens.
      NonFiniteError: a loss is NaN or infinite; names the window and the position.
    """
    num_windows, length = windows.shape
    if length < 2:
        raise SpecError(
            "window_nll",
            f"windows of {length} tokens",
            "windows of at least 2 tokens, a context and a token to score",
            "use longer windows",
        )
    nll = np.empty((num_windows, length - 1), dtype=np.float32)
    rows = texts_together(model, length, batch_tokens)
    model.begin_request(length)
    for start in range(0, num_windows, rows):
        batch = torch.from_numpy(windows[start : start + rows].astype(np.int64))
        nll[start : start + len(batch)] = _batch_nll(model, batch)
        report(start + len(batch), num_windows)
    _require_finite(nll)
    return nll


def _batch_nll(model: ExtendedModel, batch: torch.Tensor) -> NDArray[np.float32]:
    head = model.model.get_output_embeddings()
    batch = batch.to(model.model.device)
    with torch.no_grad():
        hidden = model.hidden_states(batch)
        scored = hidden[:, :-1].reshape(-1, hidden.shape[-1])
        nll = token_nll(scored, head.weight, getattr(head, "bias", None), batch[:, 1:].reshape(-1))
    losses: NDArray[np.float32] = nll.reshape(len(batch), -1).cpu().numpy()
    return losses


def _require_finite(nll: NDArray[np.float32]) -> None:
    bad = np.argwhere(~np.isfinite(nll))
    if len(bad):
        window, position = (int(index) for index in bad[0])
        raise NonFiniteError(
            f"window {window}, token {position + 1}",
            f"NLL {nll[window, position]}, one of {len(bad)} that are not finite of {nll.size}",
            "finite losses",
            "check the checkpoint and its precision",
        )
