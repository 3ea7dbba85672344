"""Print facts about this machine as one line of JSON; unknown values are null."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

PACKAGES = ("torch", "transformers", "accelerate", "flash-attn", "triton", "numpy")


def main() -> None:
    """Print versions of packages, commit, number of CPUs, and the GPU with its driver."""
    facts: dict[str, Any] = {name.replace("-", "_"): version(name) for name in PACKAGES}
    facts |= {
        "commit": git("rev-parse", "HEAD"),
        "dirty": bool(git("status", "--porcelain", "--untracked-files=no")),
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
        "gpu": None,
    }
    try:
        import torch

        if torch.cuda.is_available():
            device = torch.cuda.get_device_properties(0)
            facts["gpu"] = device.name
            facts["gpu_memory_gib"] = round(device.total_memory / 2**30, 1)
            facts["gpus"] = torch.cuda.device_count()
            facts["capability"] = f"{device.major}.{device.minor}"
            facts["cuda"] = torch.version.cuda
            facts["cudnn"] = torch.backends.cudnn.version()
            facts["driver"] = said(
                "nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"
            )
    except ImportError:
        facts["torch"] = None
    print(json.dumps(facts))


def version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def git(*arguments: str) -> str | None:
    """Return git's output for this checkout; None outside of one."""
    return said("git", "-C", str(Path(__file__).parent), *arguments)


def said(*command: str) -> str | None:
    """Return the first line that a command prints; None if it fails."""
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return next(iter(ended.stdout.splitlines()), "") if ended.returncode == 0 else None


if __name__ == "__main__":
    main()
