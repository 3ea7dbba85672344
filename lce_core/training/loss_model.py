"""A causal language model as a module whose forward pass returns the training loss.

Wrappers that act on `forward` (DistributedDataParallel, fully_shard) thus see embedding, layers and
head in one call. `linear_cross_entropy` never materialises the logits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from torch import Tensor, nn

from lce_core.devices import autocast
from lce_core.evaluation.cross_entropy import linear_cross_entropy
from lce_core.training.recomputation import storage

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class LossModel(nn.Module):
    """Return the weighted sum of next-token losses of a batch of rows.

    With "bf16", autocast computes matrix products in bf16 from fp32 weights.
    """

    def __init__(self, model: PreTrainedModel, precision: str, kept: str = "none") -> None:
        super().__init__()
        self.model, self.precision, self.kept = model, precision, kept

    def forward(self, tokens: Tensor, weights: Tensor) -> Tensor:
        """Return the weighted sum of next-token losses, in nats.

        The sum of weights[r, i] * nll(tokens[r, i] | tokens[r, :i]) over all rows r and i >= 1.
        Tokens and weights are (rows, row_length).
        """
        head = cast("nn.Linear", self.model.get_output_embeddings())
        backbone = self.model.base_model
        with autocast(tokens.device, self.precision):
            with storage(self.kept, tokens.device):
                hidden: Tensor = backbone(input_ids=tokens, use_cache=False).last_hidden_state
            return linear_cross_entropy(
                hidden[:, :-1].flatten(0, 1),
                head.weight,
                head.bias,
                tokens[:, 1:].flatten(),
                weights[:, 1:].flatten(),
            )
