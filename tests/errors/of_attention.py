"""Provocations of attention schemes and extended models."""

from __future__ import annotations

from typing import Any, ClassVar
from unittest import mock

import numpy as np
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from lce_core.attention import registered
from lce_core.attention.schemes import GroupedNeighbour
from lce_core.contracts.tiny_models import BASES, TARGET, stock, tokens
from lce_core.errors import SpecError
from lce_core.extension.extending import extend, use_kernel
from lce_core.methods import METHODS
from lce_core.rope import ContextLengths, RopeGeometry, RopeTable
from tests.support.architectures import gpt_oss
from tests.support.errors.provocations import Place, provokes
from tests.support.extended_models import method

TABLE = RopeTable(np.ones(4))


def forward(name: str = "self_extend") -> Any:
    extended = extend(stock(BASES[0]), BASES[0], method(name), target=TARGET)
    return extended, tokens(16)


class _Module:
    lce_scheme: ClassVar[Any] = (GroupedNeighbour(window=8, group=4), TABLE)
    layer_idx = 0


def attention(mask: Any = None, dropout: float = 0.0, *, gradients: bool = False) -> None:
    states = torch.ones(1, 4, 16, 8, requires_grad=gradients)
    registered._attention(_Module(), states, states, states, mask, scaling=1.0, dropout=dropout)


provokes(SpecError, "(1, 1, 16, 16)")(lambda _: attention(torch.zeros(1, 1, 16, 16)))
provokes(SpecError, "attention dropout: got 0.5")(lambda _: attention(dropout=0.5))


@provokes(SpecError, "attention mask")
def _(_: Place) -> None:
    extended, ids = forward()
    extended.begin_request(16)
    padding = torch.tensor([[1] * 16, [0] * 8 + [1] * 8])
    extended.model(ids, attention_mask=padding)


class _Doubled(METHODS.load("none")):  # type: ignore[misc]
    plugin_name: ClassVar[str] = "doubled"

    def rope_table(self, geometry: RopeGeometry, lengths: ContextLengths) -> RopeTable:
        return RopeTable(np.ones(geometry.num_pairs * 2))


provokes(SpecError, "doubled: got 8")(
    lambda _: extend(stock(BASES[0]), BASES[0], _Doubled(), target=TARGET)
)
provokes(SpecError, "'flash' on cpu with")(
    lambda _: extend(
        stock(BASES[0]), BASES[0], method("lm_infinite"), target=TARGET, kernel="flash"
    )
)

provokes(SpecError, "'flash3' on cpu with")(
    lambda _: extend(stock(BASES[0]), BASES[0], method("none"), target=TARGET, kernel="flash3")
)


@provokes(SpecError, "which has attention sinks")
def _(_: Place) -> None:
    with mock.patch.object(torch.cuda, "get_device_capability", return_value=(9, 0)):
        use_kernel(gpt_oss(), "flash", torch.device("cuda"), torch.bfloat16)


@provokes(SpecError, "GPT2LMHeadModel: got gpt2")
def _(_: Place) -> None:
    other = GPT2LMHeadModel(GPT2Config(n_embd=8, n_layer=1, n_head=1, vocab_size=20))
    extend(other, BASES[0], method("none"), target=TARGET)


provokes(SpecError, "LlamaForCausalLM.num_kv_heads: got 2")(
    lambda _: extend(stock(BASES[1]), BASES[0], method("none"), target=TARGET)
)
