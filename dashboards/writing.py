"""Files that are there as a whole, or as they were."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lce_core.errors import SpecError


def write_whole(out: Path, content: str | bytes) -> Path:
    """Writes a file aside and renames it; its folder is made if need be. Returns `out`.

    Raises:
      SpecError: the file cannot be written.
    """
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        aside = out.with_name(f".{out.name}.aside")
        aside.write_bytes(content.encode() if isinstance(content, str) else content)
        aside.replace(out)
    except OSError as error:
        raise _unwritable(out, error) from error
    return out


@contextmanager
def folder_beside(out: Path) -> Iterator[Path]:
    """A folder for what a file is made of, gone afterwards with all that is in it.

    Raises:
      SpecError: the file's folder is not there and cannot be made, or takes no other.
    """
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=f"{out.name}.", dir=out.parent))
    except OSError as error:
        raise _unwritable(out, error) from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _unwritable(out: Path, error: OSError) -> SpecError:
    return SpecError(
        "--out",
        f"{out}, which cannot be written ({error.strerror})",
        "a writable file",
        "choose another",
    )
