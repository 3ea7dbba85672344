"""Digest of a folder of weights: the identity of weights that no hub commit pins.

The digest covers every byte, because weights that differ in a single tensor are different. Reading
13 GB takes most of a minute, but only once: `lce_core.store.file_facts` caches the result.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from lce_core.errors import UnavailableError
from lce_core.store.file_facts import sha256_of

VERSION = 2
"""Version of the digest, included in it. Version 1 read only the start and end of large files."""
_SUFFIXES = (".json", ".safetensors", ".model", ".txt", ".jinja")


def weights_digest(folder: Path) -> str:
    """Return the sha256 over names and contents of the model files in `folder`.

    Raises:
      UnavailableError: if the folder cannot be read, or holds no model file.
    """
    digest = hashlib.sha256(f"weights {VERSION}\n".encode())
    try:
        files = sorted(file for file in folder.iterdir() if file.suffix in _SUFFIXES)
        for file in files:
            digest.update(f"{sha256_of(file)} {file.name}\n".encode())
    except OSError as error:
        raise UnavailableError(
            folder,
            f"a file that cannot be read ({error.strerror})",
            "readable files of a model",
            "change their permissions",
        ) from error
    if not files:
        raise UnavailableError(
            folder,
            "no model file",
            "a folder with config.json in it",
            "name the folder that holds the model",
        )
    return digest.hexdigest()
