"""Small file systems that a test can fill up or make read-only."""

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


@contextlib.contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[Path]:
    """Mount a file system of its own in a new folder; skip the test without root."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting a disk needs root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def remounted(disk: Path, how: str) -> bool:
    """Remount the disk with the option `how`; return False if the kernel refuses."""
    command = ["mount", "-o", f"remount,{how}", str(disk)]
    return subprocess.run(command, capture_output=True).returncode == 0
