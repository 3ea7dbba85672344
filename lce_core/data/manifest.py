"""Manifest of a folder of tokens: a JSON file that describes its contents, with their sha256."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lce_core.errors import StoreError
from lce_core.store.identity import sha256_file

NAME = "manifest.json"


def file_digests(folder: Path, *names: str) -> dict[str, str]:
    return {name: sha256_file(folder / name) for name in names}


def write_manifest(folder: Path, manifest: dict[str, Any]) -> None:
    """Write manifest.json; equal manifests yield equal files."""
    text = json.dumps(manifest, indent=1, sort_keys=True)
    (folder / NAME).write_text(text + "\n", encoding="utf-8")


def read_manifest(folder: Path) -> dict[str, Any]:
    file = folder / NAME
    try:
        manifest: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise StoreError(
            file,
            f"an unreadable file ({error})",
            "a JSON object that describes the files of its folder",
            "delete the folder and run the study again, which packs the data again",
        ) from error
    return manifest
