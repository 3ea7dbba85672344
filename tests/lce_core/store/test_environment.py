"""What a record says of the machine that made it, in processes of their own."""

import json
import os
import subprocess
import sys

import pytest
import torch

ASK = """
import json
from lce_core.store.records import environment
before = environment()
import torch
print(json.dumps([before["instructions"], environment()["instructions"]]))
"""


@pytest.mark.parametrize("capability", [None, "default"])
def test_it_names_the_instructions_of_torch_once_torch_is_loaded(capability: str | None) -> None:
    given = {} if capability is None else {"ATEN_CPU_CAPABILITY": capability}
    answer = subprocess.run(
        [sys.executable, "-c", ASK],
        env=os.environ | given,
        capture_output=True,
        text=True,
        check=True,
    )
    usual = torch.backends.cpu.get_cpu_capability()
    assert json.loads(answer.stdout) == [None, capability.upper() if capability else usual]
