"""Set the read and write permissions of an artifact's files to those of the artifact's folder.

Some libraries create private files (mode 0600), which a second user of a shared LCE_HOME could not
read. The folder's mode follows the user's umask or default ACL.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

_READ_AND_WRITE = 0o666


def follow_folder(folder: Path) -> None:
    wanted = folder.stat().st_mode & _READ_AND_WRITE
    for place, _, names in os.walk(folder):
        for name in names:
            path = Path(place, name)
            # Ignore errors: a file system without modes may refuse chmod.
            with contextlib.suppress(OSError):
                if path.lstat().st_mode & 0o777 != wanted and not path.is_symlink():
                    path.chmod(wanted)
