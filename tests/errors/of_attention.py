"""Provocations of attention schemes and extended models."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch
from transformers import GPT2Config, GPT2LMHeadModel
from transformers.masking_utils import causal_mask_function

from lce_core.attention import registered
from lce_core.attention.rotary import RequestRotary
from lce_core.attention.rotation import check_heads
from lce_core.attention.schemes import GroupedNeighbour
from lce_core.contracts.tiny_models import BASES, TARGET, TRAINED, stock, tokens
from lce_core.extension.extending import extend
from lce_core.extension.insertion import Inserter
from lce_core.methods import METHODS
from lce_core.rope import ContextLengths, RopeGeometry, RopeTable
from tests.support.architectures import random_model
from tests.support.errors.provocations import Place, Table
from tests.support.extended_models import method

PROVOCATIONS = Table()
provokes = PROVOCATIONS
GEOMETRY = BASES[0].geometry
LENGTHS = ContextLengths(TRAINED, TARGET, TARGET)
TABLE = RopeTable(np.ones(4))


def parse(name: str, **parameters: Any) -> Any:
    return METHODS.parse({"name": name, **parameters}, "methods[0]")


def forward(name: str = "self_extend") -> Any:
    extended = extend(stock(BASES[0]), BASES[0], method(name), target=TARGET)
    return extended, tokens(16)


class _Module:
    lce_scheme: ClassVar[Any] = (GroupedNeighbour(window=8, group=4), TABLE)


def attention(mask: Any = None, dropout: float = 0.0, *, gradients: bool = False) -> None:
    states = torch.ones(1, 4, 16, 8, requires_grad=gradients)
    registered._attention(_Module(), states, states, states, mask, scaling=1.0, dropout=dropout)


@provokes("lce_core/attention/registered.py", "a mask of shape")
def _(_: Place) -> None:
    attention(torch.zeros(1, 1, 16, 16))


@provokes("lce_core/attention/registered.py", "no dropout")
def _(_: Place) -> None:
    attention(dropout=0.5)


@provokes("lce_core/attention/registered.py", "records gradients")
def _(_: Place) -> None:
    attention(gradients=True)


@provokes("lce_core/attention/registered.py", "rows that are one document")
def _(_: Place) -> None:
    extended, ids = forward()
    extended.begin_request(16)
    padding = torch.tensor([[1] * 16, [0] * 8 + [1] * 8])
    extended.model(ids, attention_mask=padding)


@provokes("lce_core/attention/registered.py", "keys for")
def _(_: Place) -> None:
    registered._mask(
        q_length=4,
        kv_length=9,
        q_offset=0,
        mask_function=causal_mask_function,
        attention_mask=None,
    )


@provokes("lce_core/attention/rotary.py", "outside any request")
def _(_: Place) -> None:
    RequestRotary(8, identity=False)(torch.ones(1, 4, 8), torch.arange(4)[None])


@provokes("lce_core/attention/rotary.py", "gaps or restarts")
def _(_: Place) -> None:
    rotary = RequestRotary(8, identity=True)
    rotary.begin(TABLE, 16)
    rotary(torch.ones(1, 4, 8), torch.tensor([[0, 1, 0, 1]]))


@provokes("lce_core/attention/rotary.py", "tokens of the request")
def _(_: Place) -> None:
    extended, ids = forward("none")
    extended.begin_request(8)
    extended.hidden_states(ids)


@provokes("lce_core/attention/rotation.py", "one row for each")
def _(_: Place) -> None:
    check_heads(RopeTable(np.ones((3, 4))), 4, 4)


@provokes("lce_core/attention/rotation.py", "different bases")
def _(_: Place) -> None:
    check_heads(RopeTable(np.arange(1.0, 17.0).reshape(4, 4)), 4, 2)


@provokes("lce_core/extension/insertion.py", "rows of whole sequences")
def _(_: Place) -> None:
    Inserter(parse("landmark", block=2).insertion(GEOMETRY), VOCABULARY).piece_of(63)


VOCABULARY = 50


class _Doubled(METHODS.load("none")):  # type: ignore[misc]
    plugin_name: ClassVar[str] = "doubled"

    def rope_table(self, geometry: RopeGeometry, lengths: ContextLengths) -> RopeTable:
        return RopeTable(np.ones(geometry.num_pairs * 2))


@provokes("lce_core/extension/description.py", "frequencies")
def _(_: Place) -> None:
    extend(stock(BASES[0]), BASES[0], _Doubled(), target=TARGET)


@provokes("lce_core/extension/kernels.py", "and the flash-attn package")
def _(_: Place) -> None:
    extend(stock(BASES[0]), BASES[0], method("none"), target=TARGET, kernel="flash")


@provokes("lce_core/extension/kernels.py", "for the flash kernel of attention schemes")
def _(_: Place) -> None:
    extend(stock(BASES[0]), BASES[0], method("lm_infinite"), target=TARGET, kernel="flash")


@provokes("lce_core/extension/kernels.py", "which has no flash kernel")
def _(_: Place) -> None:
    extend(stock(BASES[0]), BASES[0], method("landmark"), target=TARGET, kernel="flash")


@provokes("lce_core/extension/compatibility.py", "a model of type")
def _(_: Place) -> None:
    other = GPT2LMHeadModel(GPT2Config(n_embd=8, n_layer=1, n_head=1, vocab_size=20))
    extend(other, BASES[0], method("none"), target=TARGET)


@provokes("lce_core/extension/compatibility.py", "full attention in every layer")
def _(_: Place) -> None:
    extend(random_model("mistral", sliding_window=8), BASES[0], method("none"), target=TARGET)


@provokes("lce_core/extension/compatibility.py", "as the base model has it")
def _(_: Place) -> None:
    extend(stock(BASES[1]), BASES[0], method("none"), target=TARGET)


@provokes("lce_core/extension/extended_model.py", "which reaches")
def _(_: Place) -> None:
    extended, _ids = forward()
    extended.begin_request(41)
