"""Code shared by the section scripts of `perf/gpu.py`: rows, models, and facts about the machine.

python perf/gpu_common.py     # print the facts as one line of JSON
"""

import json
import subprocess
import time
import traceback
from argparse import Namespace
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from measuring import parser

from lce_core.errors import LceError
from lce_core.models import MODELS, LanguageModel
from lce_core.store.records import environment
from lce_core.study.plugin_folders import add_plugin_folders

PLUGINS = Path(__file__).parent / "plugins"
SHAPES = {"Llama-2-7B": {}, "tiny": {"tiny": True, "layers": 2}}
Measurement = tuple[Mapping[str, Any], Callable[[], Mapping[str, Any]]]
"""What a row measures, and the function that returns its figures."""


class SkippedError(Exception):
    """Ends a measurement that this machine cannot make; the message is the reason."""


def figures(measure: Callable[[], Mapping[str, Any]], deadline: float) -> Mapping[str, Any]:
    """Return what `measure` returns, or why there are no figures.

    A measurement that does not fit into memory or time, or that lce refuses, is `skipped`. Any
    other exception is a defect: the measurement `failed`, and its traceback is printed.
    """
    try:
        if time.monotonic() > deadline:
            raise SkippedError("no time left")
        return measure()
    except (SkippedError, LceError, torch.OutOfMemoryError) as reason:
        return {"skipped": first_line(reason)}
    except Exception as error:  # noqa: BLE001 - one defect must not hide other figures
        traceback.print_exc()
        return {"failed": f"{type(error).__name__}: {first_line(error)}"}


def section(
    description: str | None,
    measurements: Callable[[Namespace], Iterable[Measurement]],
    **defaults: Any,
) -> int:
    """Write a JSON line for each measurement when it ends; return the exit code, 1 after a defect.

    The options that `measurements` receives also have the `deadline` (monotonic) of the section,
    after which no measurement starts.
    """
    made = parser(description, shape="Llama-2-7B", seconds=120.0, lengths=(32768,), **defaults)
    made.add_argument("--rows", type=Path, required=True, help="receives rows as JSON lines")
    options = made.parse_args()
    options.deadline = time.monotonic() + options.seconds
    failed = False
    for row, measure in measurements(options):
        found = figures(measure, options.deadline)
        failed |= "failed" in found
        with options.rows.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"model": options.shape, **row, **found}) + "\n")
    return int(failed)


def first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), "")[:160]


def random_llama(shape: str, **sizes: int) -> LanguageModel:
    """Return a base model with random weights; `sizes` override those of `SHAPES[shape]`."""
    add_plugin_folders((PLUGINS,))
    return MODELS.parse({"name": "random_llama", **SHAPES[shape], **sizes}, "perf/gpu")


def gib(number: int) -> float:
    """Return a number of bytes in GiB, with two decimals."""
    return round(number / 2**30, 2)


def facts() -> dict[str, Any]:
    """Return versions of libraries, commit, number of CPUs, and the GPU with its driver."""
    known = environment()
    found = {**known["libraries"], **known["git"], "gpu": None}
    found |= {"python": known["python"], "cpus": known["cpu_count"]}
    if torch.cuda.is_available():
        device = torch.cuda.get_device_properties(0)
        found |= {
            "gpu": device.name,
            "gpu_memory_gib": round(device.total_memory / 2**30, 1),
            "gpus": torch.cuda.device_count(),
            "capability": f"{device.major}.{device.minor}",
            "cuda": torch.version.cuda,
            "cudnn": torch.backends.cudnn.version(),
            "driver": _driver(),
        }
    return found


def _driver() -> str | None:
    command = ("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return ended.stdout.partition("\n")[0]


if __name__ == "__main__":
    print(json.dumps(facts()))
