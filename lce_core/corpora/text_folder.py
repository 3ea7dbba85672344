"""Your own text in a folder: Markdown (`.md`), `.txt` and `.jsonl` files.

Reads files as `jsonl_folder` does, and `.md` files as `.txt` files: unchanged, markup included.

Source: own; a second name, because `jsonl_folder` cannot read more files without changing the ids
of finished studies whose folders also contain Markdown.
"""

from typing import ClassVar

from lce_core.corpora.jsonl_folder import JsonlFolder
from lce_core.evidence import calls
from lce_core.registry import Source

VERSION = 1
SOURCE = Source(paper="own", place="files of Markdown, plain text and JSON lines", reference="own")


class TextFolder(JsonlFolder):
    """Documents of all `.jsonl`, `.md` and `.txt` files below a folder, in path and line order."""

    endings: ClassVar[tuple[str, ...]] = (".jsonl", ".md", ".txt")


CORPUS = TextFolder
EVIDENCE = (
    calls(
        TextFolder.split,
        "train",
        "printf a.md | sha256sum",
        name="a.md",
        parameters={"held_out_percent": 5.0},
    ),
)
