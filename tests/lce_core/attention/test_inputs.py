"""What kernels are told about the layer that they compute."""

from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch

from lce_core.attention import registered
from lce_core.attention.causal import full_causal
from lce_core.attention.inputs import AttentionInputs
from lce_core.attention.schemes import FullCausal
from lce_core.contracts.tiny_models import BASES, TARGET, logits, stock, tokens
from lce_core.extension.extending import extend
from lce_core.methods import Method
from lce_core.rope import ContextLengths, RopeGeometry

CALLS: list[tuple[int, tuple[int, int]]] = []


@dataclass(frozen=True)
class Written(FullCausal):
    """Full attention that writes down the layer and the group of heads of each call."""

    kernel: ClassVar[str] = f"{__name__}:write"


def write(scheme: Written, inputs: AttentionInputs) -> torch.Tensor:
    CALLS.append((inputs.layer, inputs.part))
    return full_causal(scheme, inputs)


class OwnKernel(Method):
    family = "approximate"

    def attention(self, geometry: RopeGeometry, lengths: ContextLengths) -> Written:
        return Written()


@pytest.mark.parametrize("base", BASES, ids=lambda base: type(base).__name__)
@pytest.mark.parametrize("groups", [1, 2])
def test_a_kernel_knows_the_layer_it_computes(base, groups, monkeypatch):
    monkeypatch.setattr(registered, "num_parts", lambda inputs: groups)
    CALLS.clear()
    with torch.no_grad():
        logits(extend(stock(base, layers=3), base, OwnKernel(), target=TARGET), tokens(9), (4,))
    one_pass = [(layer, (part, groups)) for layer in range(3) for part in range(groups)]
    assert 2 * one_pass == CALLS
