"""Run a module in a helper process that ends with the process that started it."""

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from lce_core.environment import for_child
from lce_core.store.odd_files import make_folder, make_way

_END_SECONDS = 60.0
"""Time for the last update; then the helper process is killed."""


@contextlib.contextmanager
def companion(module: str, *arguments: str, log: Path) -> Iterator[None]:
    """Run `python -m module arguments` during the `with` block; append its output to `log`.

    The module must exit when its standard input closes (see `end_of_input`): at the end of the
    block, or when this process dies.
    """
    make_folder(log.parent)
    make_way(log)
    with log.open("ab") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=out,
            env=for_child(os.environ),
            start_new_session=True,  # Ctrl-C must reach only the run
        )
    try:
        yield
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def end_of_input() -> threading.Event:
    ended = threading.Event()

    def wait() -> None:
        while sys.stdin.buffer.read(1):
            pass
        ended.set()

    threading.Thread(target=wait, daemon=True).start()
    return ended
