"""Provocations of packed text and corpora."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from lce_core.corpora import CORPORA, Corpus, Document, Split, StreamedCorpus, local_text
from lce_core.data.held_out import HeldOutText, pack_held_out
from lce_core.data.manifest import read_manifest
from lce_core.data.packing import PackedRows, pack_rows
from lce_core.data.shards import write_shards
from lce_core.data.token_shards import TokenShards
from lce_core.data.tokenised import checked, token_dtype
from lce_core.recipe import Upsampling
from tests.support.data.slimpajama import write
from tests.support.errors.provocations import Place, Table
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


@provokes("lce_core/data/tokenised.py", "tokens of the model's vocabulary")
def _(_: Place) -> None:
    checked([[300]], [Document("a", "poems", "A rose.")], 256)


@provokes("lce_core/data/tokenised.py", "which 32 bits hold")
def _(_: Place) -> None:
    token_dtype(2**32 + 1)


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


def corpus(place: Place, name: str, content: bytes, *, digest: bool = False) -> None:
    """Reads a folder with one file."""
    (place.folder / name).write_bytes(content)
    asked = CORPORA.parse({"name": "jsonl_folder", "folder": "mine"}, "corpus")
    if digest:
        asked.digest({"mine": place.folder})
    for split in ("train", "held_out"):
        list(asked.documents(split, {"mine": place.folder}))  # type: ignore[arg-type]


@provokes("lce_core/corpora/_domains.py", "distinct names")
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


def stream(place: Place, entries: list[dict[str, Any]], **settings: Any) -> None:
    """Reads a data set of one file."""
    write(place.folder / "a.jsonl", entries)
    asked = CORPORA.parse({"name": "streamed", "folder": "mine", **settings}, "corpus")
    asked.digest({"mine": place.folder})
    list(asked.documents("train", {"mine": place.folder}))


@provokes("lce_core/corpora/streamed.py", "a data set on this machine or on the hub")
def _(_: Place) -> None:
    list(CORPORA.parse({"name": "streamed"}, "corpus").documents("train", {}))


@provokes("lce_core/corpora/streamed.py", "parquet files or JSON lines")
def _(place: Place) -> None:
    stream(place, [{"text": "A rose."}], files=["*.parquet"])


@provokes("lce_core/corpora/streamed.py", "a file of another kind")
def _(place: Place) -> None:
    (place.folder / "a.csv").write_text("text\n", encoding="utf-8")
    stream(place, [{"text": "A rose."}], files=["*"])


@provokes("lce_core/corpora/streamed.py", "a file that cannot be read")
def _(place: Place) -> None:
    (place.folder / "b.jsonl").write_text("{", encoding="utf-8")
    stream(place, [{"text": "A rose."}])


@provokes("lce_core/corpora/streamed.py", "a column {names[0]}")
def _(place: Place) -> None:
    stream(place, [{"content": "A rose."}])


@provokes("lce_core/corpora/streamed.py", "a column with")
def _(place: Place) -> None:
    stream(place, [{"text": "A rose.", "meta": {"set": "poems"}}], domain_field="meta.source")


@provokes("lce_core/corpora/streamed.py", "a string in the column")
def _(place: Place) -> None:
    stream(place, [{"text": "A rose."}, {"text": None}])


@provokes("lce_core/corpora/streamed.py", "add it to domain_names")
def _(place: Place) -> None:
    stream(place, [{"text": "A rose.", "domain": "poems"}], domain_field="domain")


@provokes("lce_core/hub.py", "a hub that does not list its files")
def _(place: Place) -> None:
    address = Path(f"hub:nobody/nothing@{'0' * 40}")
    list(CORPORA.parse({"name": "streamed"}, "corpus").documents("train", {"text": address}))


def shards(place: Place, text: str = "A rose.") -> Path:
    """Tokenises a data set of one document, and returns where its tokens are."""
    write(place.folder / "text" / "a.jsonl", [{"text": text}])
    asked = CORPORA.parse({"name": "streamed", "held_out_percent": 1e-9}, "corpus")
    assert isinstance(asked, StreamedCorpus)
    out = place.folder / "out"
    out.mkdir()
    write_shards(
        asked,
        BASE.tokenizer(None),
        folders={"text": place.folder / "text"},
        progress=place.folder / "progress",
        out=out,
        workers=1,
        report=lambda _: None,
    )
    return out


@provokes("lce_core/data/shards.py", "no tokens in any document")
def _(place: Place) -> None:
    shards(place, text="")


@provokes("lce_core/data/segments.py", "a token shard as the manifest describes it")
def _(place: Place) -> None:
    out = shards(place)
    (out / "00000" / "0.bin").unlink()
    TokenShards.open(out, "train")
