"""Insert a method's token (a landmark, say) into texts, and add it to the model's vocabulary.

The token follows every `block - 1` tokens of text. "Expanded" means with inserted tokens.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedModel

from lce_core.errors import SpecError
from lce_core.methods import TokenInsertion

TOKEN_ID = "landmark_token_id"
"""Key of config.json with the id of the inserted token, so that checkpoints store the id."""


@dataclass(frozen=True)
class Inserter:
    """Insert the method's token into texts."""

    insertion: TokenInsertion
    token: int

    def length(self, num_tokens: int) -> int:
        return num_tokens + num_tokens // (self.insertion.block - 1)

    def places(self, first: int, num_tokens: int) -> NDArray[np.int64]:
        """Return the expanded text's places (num_tokens,) of text tokens first, first + 1, ..."""
        tokens = np.arange(first, first + num_tokens)
        return tokens + tokens // (self.insertion.block - 1)

    def expand(self, ids: torch.Tensor, cached: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Insert the token into a chunk (batch, tokens) of text that follows `cached` tokens.

        Return the expanded ids (batch, expanded), and for each text token the index (tokens,) of
        the hidden state that predicts the next text token: its own or, at the end of a block, that
        of the inserted token.
        """
        first, num_tokens = cached - cached // self.insertion.block, ids.shape[1]
        expanded = ids.new_full((len(ids), self.length(first + num_tokens) - cached), self.token)
        own = torch.from_numpy(self.places(first, num_tokens) - cached).to(ids.device)
        expanded[:, own] = ids
        after = torch.from_numpy(self.places(first + 1, num_tokens) - cached).to(ids.device)
        return expanded, after - 1

    def piece_of(self, row_length: int) -> int:
        text = self.insertion.train_length
        if row_length % text:
            raise SpecError(
                "training rows",
                f"{row_length} tokens",
                f"a multiple of {text} tokens, the method's train_length",
                "change target_context to a multiple of the method's train_length",
            )
        return text

    def pieces(
        self, tokens: NDArray[np.int64], weights: NDArray[np.float32]
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Cut rows (rows, row_length) into independent sequences and insert the token.

        Returns token ids and loss weights, both (rows * row_length / train_length, expanded).
        Inserted tokens have weight 1, or 0 in a block without weight, as padding is. The first
        token of a sequence has weight 0, because no earlier token predicts it.
        """
        text, block = self.insertion.train_length, self.insertion.block
        tokens, weights = tokens.reshape(-1, text), weights.reshape(-1, text)
        shape, own = (len(tokens), self.length(text)), self.places(0, text)
        expanded = np.full(shape, self.token, dtype=tokens.dtype)
        expanded_weights = np.zeros(shape, dtype=weights.dtype)
        expanded[:, own], expanded_weights[:, own] = tokens, weights
        whole = expanded_weights[:, : shape[1] // block * block].reshape(len(tokens), -1, block)
        expanded_weights[:, block - 1 :: block] = whole.any(axis=2)
        expanded_weights[:, 0] = 0
        return expanded, expanded_weights


def reserve_token(model: PreTrainedModel) -> int:
    """Return the id of the inserted token; add it to the model's vocabulary if it is missing.

    Its rows in embedding and output head are the mean of the others: no random numbers are drawn.
    """
    known: int | None = getattr(model.config, TOKEN_ID, None)
    if known is not None:
        return known
    embedding: Any = model.get_input_embeddings()
    token: int = embedding.weight.shape[0]
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        model.resize_token_embeddings(token + 1, mean_resizing=False)
        parts: list[Any] = [model.get_input_embeddings(), model.get_output_embeddings()]
        tables = [part.weight for part in parts]
        tables += [part.bias for part in parts if getattr(part, "bias", None) is not None]
        for table in tables:
            table[token] = table[:token].float().mean(dim=0).to(table.dtype)
    setattr(model.config, TOKEN_ID, token)
    return token
