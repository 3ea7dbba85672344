"""What a folder of weights holds, told in a moment: the identity of weights that no hub pins.

Small files (configuration, tokenizer) are hashed whole. Of a large one the size, the first and the
last mebibyte count: for safetensors that is the header with every tensor's name, shape and place,
and the values of the last tensors. Reading 13 GB on every plan would take minutes.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from lce_core.errors import UnavailableError

_SAMPLE_BYTES = 1 << 20
_SUFFIXES = (".json", ".safetensors", ".model", ".txt", ".jinja")


def weights_digest(folder: Path) -> str:
    """sha256 over names, sizes and sampled contents of the model files in `folder`.

    Raises:
      UnavailableError: the folder cannot be read, or holds no model file.
    """
    digest = hashlib.sha256()
    try:
        files = sorted(file for file in folder.iterdir() if file.suffix in _SUFFIXES)
        for file in files:
            digest.update(f"{file.name} {file.stat().st_size}\n".encode())
            digest.update(_sample(file))
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


def _sample(file: Path) -> bytes:
    size = file.stat().st_size
    with file.open("rb") as content:
        start = content.read(_SAMPLE_BYTES)
        content.seek(max(len(start), size - _SAMPLE_BYTES))
        return start + content.read(_SAMPLE_BYTES)
