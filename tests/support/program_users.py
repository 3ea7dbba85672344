"""Writes down which test files start programs or look for them on the PATH.

`make check` repeats these files on a PATH without some programs; no other file can tell.
"""

import multiprocessing.process
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

OPTION = "--program-users"
_STARTS = {"os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.system", "subprocess.Popen"}


def pytest_addoption(parser: pytest.Parser) -> None:
    about = "append the test files that start a program, or look for one, to this file"
    parser.addoption(OPTION, metavar="FILE", help=about)


def pytest_configure(config: pytest.Config) -> None:
    if file := config.getoption(OPTION):
        from lce_core.store.records import environment

        environment()  # asks git once a process: whichever test came first would be listed
        config.pluginmanager.register(_Watch(config.rootpath / file))


class _Watch:
    """Hooks into what starts a process or finds a program, until the session's process ends."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._running: str | None = None
        self._written: set[str] = set()
        sys.addaudithook(lambda event, _: self._note() if event in _STARTS else None)
        which, start = shutil.which, multiprocessing.process.BaseProcess.start

        def noted_which(*args: Any, **kwargs: Any) -> Any:
            self._note()
            return which(*args, **kwargs)

        def noted_start(process: multiprocessing.process.BaseProcess) -> None:
            self._note()  # no audit event: multiprocessing's fork server starts processes itself
            start(process)

        shutil.which = noted_which
        multiprocessing.process.BaseProcess.start = noted_start  # type: ignore[method-assign]

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._running = item.nodeid.partition("::")[0]
        try:
            return (yield)
        finally:
            self._running = None

    def _note(self) -> None:
        if self._running and self._running not in self._written:
            self._written.add(self._running)
            with self._file.open("a", encoding="utf-8") as file:
                file.write(f"{self._running}\n")
