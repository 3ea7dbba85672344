"""SmolLM2-135M, base weights from the hub: 8,192 tokens of context in a model for any machine.

Source: Allal et al. 2025, "SmolLM2: When Smol Goes Big", arXiv:2502.02737.
"""

from __future__ import annotations

from typing import ClassVar

from lce_core.evidence import calls
from lce_core.models import HubAddress
from lce_core.models._smollm2 import SmolLM2
from lce_core.models._stock import StockModel
from lce_core.registry import Source

VERSION = 1
SOURCE = Source(
    paper="arXiv:2502.02737",
    place="section on smaller models",
    reference="huggingface.co/HuggingFaceTB/SmolLM2-135M@93efa2f097d58c2a74874c7e644dbc9b0cee75a2",
)
EVIDENCE = (
    calls(
        StockModel.num_parameters,
        134_515_008,
        "49152 x 576 + 30 x (2 x 576^2 + 2 x 576 x 192 + 3 x 576 x 1536 + 2 x 576) + 576, by hand",
        parameters={},
    ),
)


class SmolLM2135M(SmolLM2):
    """The pretrained 135-million-parameter SmolLM2."""

    hub: ClassVar[HubAddress | None] = HubAddress(
        "HuggingFaceTB/SmolLM2-135M", "93efa2f097d58c2a74874c7e644dbc9b0cee75a2"
    )
    begin: ClassVar[int] = 0
    end: ClassVar[int] = 0


MODEL = SmolLM2135M
