"""Tests that compile with torch's code generator for CPUs."""

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from torch._dynamo.utils import counters

needs_compiler = pytest.mark.skipif(
    not shutil.which("g++"), reason="torch.compile needs a compiler of C++"
)


@contextmanager
def fresh_compiler() -> Iterator[None]:
    """Forget earlier graphs and counts, and afterwards what compiling leaves in the process."""
    folders = sys.path.copy()
    torch.compiler.reset()
    counters.clear()
    try:
        yield
    finally:
        torch.compiler.reset()
        # torch imports setuptools, which adds a folder of packages of other versions.
        sys.path[:] = folders
