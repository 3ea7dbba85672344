from typing import ClassVar
from unittest import mock

import numpy as np
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from lce_core.contracts.tiny_models import BASES, TARGET, stock
from lce_core.errors import SpecError
from lce_core.extension.extending import extend, use_kernel
from lce_core.methods import METHODS
from lce_core.rope import ContextLengths, RopeGeometry, RopeTable
from tests.support.architectures import gpt_oss
from tests.support.errors.provocations import Place, provokes
from tests.support.extended_models import method


class _Doubled(METHODS.load("none")):  # type: ignore[misc]
    plugin_name: ClassVar[str] = "doubled"

    def rope_table(self, geometry: RopeGeometry, lengths: ContextLengths) -> RopeTable:
        return RopeTable(np.ones(geometry.num_pairs * 2))


provokes(SpecError, "doubled: got 8")(
    lambda _: extend(stock(BASES[0]), BASES[0], _Doubled(), target=TARGET)
)


@provokes(SpecError, "which has attention sinks")
def _(_: Place) -> None:
    with mock.patch.object(torch.cuda, "get_device_capability", return_value=(9, 0)):
        use_kernel(gpt_oss(), "flash", torch.device("cuda"), torch.bfloat16)


@provokes(SpecError, "GPT2LMHeadModel: got gpt2")
def _(_: Place) -> None:
    other = GPT2LMHeadModel(GPT2Config(n_embd=8, n_layer=1, n_head=1, vocab_size=20))
    extend(other, BASES[0], method("none"), target=TARGET)
