"""Provocations of packed text and corpora."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from lce_core.corpora import CORPORA, Corpus, Document, Split, local_text
from lce_core.data.held_out import HeldOutText, pack_held_out
from lce_core.data.manifest import read_manifest
from lce_core.data.packing import PackedRows, pack_rows
from lce_core.recipe import Upsampling
from tests.support.provocations import Place, Table
from tests.support.training_jobs import BASE, Words, packed_rows

PROVOCATIONS = Table()
provokes = PROVOCATIONS


@provokes("lce_core/data/manifest.py", "no readable manifest")
def _(place: Place) -> None:
    read_manifest(place.folder)


class _Poems(Corpus):
    """One document of a domain that it may not name, or none."""

    plugin_name: ClassVar[str] = "poems"
    domain: str = "poems"
    text: str = "A rose."

    def domains(self) -> tuple[str, ...]:
        return ("poems",)

    def documents(self, split: Split, folders: Mapping[str, Path]) -> Iterator[Document]:
        yield Document(f"{split}-0", self.domain, self.text)


def pack(place: Place, corpus: Corpus, **changes: Any) -> None:
    options: dict[str, Any] = {"row_length": 8, "num_rows": 1, **changes}
    pack_rows(
        corpus,
        changes.pop("base", BASE),
        BASE.tokenizer(None),
        upsampling=Upsampling(),
        seed=0,
        folders={},
        out=place.folder,
        report=lambda _: None,
        row_length=options["row_length"],
        num_rows=options["num_rows"],
    )


@provokes("lce_core/data/packing.py", "with a token to predict")
def _(place: Place) -> None:
    pack(place, Words(), row_length=1)


@provokes("lce_core/data/packing.py", "of the manifest")
def _(place: Place) -> None:
    packed_rows(place.folder)
    (place.folder / "rows.bin").unlink(missing_ok=True)
    for file in place.folder.glob("*.bin"):
        file.unlink()
    PackedRows.open(place.folder)


@provokes("lce_core/data/sampling.py", "no tokens in the training split")
def _(place: Place) -> None:
    pack(place, _Poems(text=""))


@provokes("lce_core/data/tokenised.py", "of the corpus's domains")
def _(place: Place) -> None:
    pack(place, _Poems(domain="novels"))


@provokes("lce_core/data/tokenised.py", "vocabulary of")
def _(place: Place) -> None:
    from lce_core.data.tokenised import _write

    with (place.folder / "tokens").open("wb") as out:
        _write([[300]], [Document("a", "poems", "A rose.")], 256, np.dtype(np.uint16), out)


def held_out(place: Place, corpus: Corpus) -> HeldOutText:
    pack_held_out(
        corpus,
        BASE.tokenizer(None),
        tokens_per_domain=50,
        folders={},
        out=place.folder,
        report=lambda _: None,
    )
    return HeldOutText.open(place.folder)


@provokes("lce_core/data/held_out.py", "no held-out text")
def _(place: Place) -> None:
    held_out(place, _Poems(text=""))


@provokes("lce_core/data/held_out.py", "one of its domains")
def _(place: Place) -> None:
    held_out(place, _Poems()).stream("novels")


def corpus(place: Place, name: str, content: bytes, *, digest: bool = False) -> None:
    """Reads a folder with one file."""
    (place.folder / name).write_bytes(content)
    asked = CORPORA.parse({"name": "jsonl_folder", "folder": "mine"}, "corpus")
    if digest:
        asked.digest({"mine": place.folder})
    for split in ("train", "held_out"):
        list(asked.documents(split, {"mine": place.folder}))  # type: ignore[arg-type]


@provokes("lce_core/corpora/jsonl_folder.py", "distinct names")
def _(_: Place) -> None:
    settings = {"name": "jsonl_folder", "folder": "mine", "domain_names": ["a", "a"]}
    CORPORA.parse(settings, "corpus")


@provokes("lce_core/corpora/jsonl_folder.py", "no folder of this name")
def _(_: Place) -> None:
    asked = CORPORA.parse({"name": "jsonl_folder", "folder": "mine"}, "corpus")
    list(asked.documents("train", {}))


@provokes("lce_core/corpora/jsonl_folder.py", "no folder there")
def _(place: Place) -> None:
    asked = CORPORA.parse({"name": "jsonl_folder", "folder": "mine"}, "corpus")
    list(asked.documents("train", {"mine": place.folder / "none"}))


@provokes("lce_core/corpora/jsonl_folder.py", "no .jsonl or .txt file")
def _(place: Place) -> None:
    corpus(place, "a.md", b"text")


@provokes("lce_core/corpora/jsonl_folder.py", "file names in UTF-8")
def _(place: Place) -> None:
    corpus(place, "a\udcff.txt", b"text")


@provokes("lce_core/corpora/jsonl_folder.py", "one JSON object a line")
def _(place: Place) -> None:
    corpus(place, "a.jsonl", b"{\n")


@provokes("lce_core/corpora/jsonl_folder.py", "no text under")
def _(place: Place) -> None:
    corpus(place, "a.jsonl", b"{}\n")


@provokes("lce_core/corpora/jsonl_folder.py", "half a surrogate pair")
def _(place: Place) -> None:
    corpus(place, "a.jsonl", b'{"text": "\\ud800"}\n')


@provokes("lce_core/corpora/jsonl_folder.py", "add it to domain_names")
def _(place: Place) -> None:
    corpus(place, "a.jsonl", b'{"text": "a", "domain": "poems"}\n')


@provokes("lce_core/corpora/jsonl_folder.py", "got byte {byte}")
def _(place: Place) -> None:
    corpus(place, "a.txt", b"abc\xff", digest=True)


@provokes("lce_core/corpora/jsonl_folder.py", "a readable file")
def _(place: Place) -> None:
    (place.folder / "b.txt").symlink_to(place.folder / "none")
    corpus(place, "a.txt", b"abc")


@provokes("lce_core/corpora/local_text.py", "no Python sources")
def _(place: Place) -> None:
    place.patch.setattr(local_text, "_library", lambda: place.folder)
    list(CORPORA.parse({"name": "local_text"}, "corpus").documents("train", {}))


@provokes("lce_core/corpora/local_text.py", "a readable file")
def _(place: Place) -> None:
    (place.folder / "a.py").symlink_to(place.folder / "none")
    place.patch.setattr(local_text, "_library", lambda: place.folder)
    list(CORPORA.parse({"name": "local_text"}, "corpus").documents("train", {}))


@provokes("lce_core/corpora/local_text.py", "UTF-8 text")
def _(place: Place) -> None:
    (place.folder / "a.py").write_bytes(b"\xff")
    place.patch.setattr(local_text, "_library", lambda: place.folder)
    for split in ("train", "held_out"):
        list(CORPORA.parse({"name": "local_text"}, "corpus").documents(split, {}))  # type: ignore[arg-type]
