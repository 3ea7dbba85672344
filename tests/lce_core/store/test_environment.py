"""What a record says of the machine that made it, in processes of their own."""

import json
import os
import subprocess
import sys

ASK = """
import json
from lce_core.store.records import environment
before = environment()
import torch
print(json.dumps([before["instructions"], environment()["instructions"]]))
"""


def test_it_names_the_instructions_of_torch_once_torch_is_loaded():
    answer = subprocess.run(
        [sys.executable, "-c", ASK],
        env=os.environ | {"ATEN_CPU_CAPABILITY": "default"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(answer.stdout) == [None, "DEFAULT"]
