"""Small random models extended for tests of evaluation, and what passes through them."""

from typing import Any

import torch

from lce_core.contracts.tiny_models import BASES, TARGET, fits, stock
from lce_core.extension.extended_model import ExtendedModel
from lce_core.extension.extending import extend
from lce_core.methods import METHODS
from tests.support.cells import TOY
from tests.support.extended_models import method


def toy(name: str = "none", dtype: torch.dtype = torch.float64, seed: int = 3) -> ExtendedModel:
    """The toy model, with a context of 128 tokens, and the method with its defaults for 512."""
    chosen = METHODS.parse({"name": name}, "test")
    return extend(TOY.initialise(seed).to(dtype).eval(), TOY, chosen, target=512)


def tiny(
    name: str, dtype: torch.dtype = torch.float64, device: torch.device | str = "cpu"
) -> ExtendedModel:
    """A model of two layers with a context of 16 tokens and a method that reads 40 or more."""
    chosen = method(name)
    base = next(base for base in (BASES[1], BASES[0]) if fits(chosen, base))
    return extend(stock(base).to(device, dtype), base, chosen, target=TARGET)


def passes_of(model: ExtendedModel) -> list[tuple[int, ...]]:
    """A list that gets the shape (texts, tokens) of each pass from now on."""
    seen: list[tuple[int, ...]] = []
    model.model.get_decoder().register_forward_pre_hook(
        lambda _, __, given: seen.append(tuple(given["input_ids"].shape)), with_kwargs=True
    )
    return seen


def num_tokens(passes: list[tuple[int, ...]]) -> int:
    return sum(texts * tokens for texts, tokens in passes)


@torch.no_grad()
def whole_logits(model: ExtendedModel, ids: Any) -> torch.Tensor:
    """Logits (tokens, vocabulary of text) of one text, read at once in a request of its length."""
    model.begin_request(len(ids))
    states = model.hidden_states(torch.as_tensor(ids)[None].to(model.model.device))[0]
    logits: torch.Tensor = model.model.get_output_embeddings()(states)
    return logits[:, : model.inserter.token] if model.inserter else logits
