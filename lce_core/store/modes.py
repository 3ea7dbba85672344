"""File modes: what lies in a folder may be read and written by whoever may use the folder.

Libraries write through private temporary files (mode 0600), which a second user of a shared home
could not read. A folder that was made plainly has the mode that the umask, or the file system's
default access list, gives.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

_READ_AND_WRITE = 0o666


def follow_folder(folder: Path) -> None:
    """Give all files below a folder its own mode, without the right to execute."""
    wanted = folder.stat().st_mode & _READ_AND_WRITE
    for place, _, names in os.walk(folder):
        for name in names:
            path = Path(place, name)
            # A file system without modes gives every file the same, and may refuse to change it.
            with contextlib.suppress(OSError):
                if path.lstat().st_mode & 0o777 != wanted and not path.is_symlink():
                    path.chmod(wanted)
