from typing import Any

from lce_core.corpora import CORPORA, StreamedCorpus, local_text
from lce_core.data.shards import write_shards
from lce_core.data.tokenised import token_dtype
from lce_core.errors import DataError, SpecError
from tests.support.data.slimpajama import write
from tests.support.errors.provocations import Place, provokes
from tests.support.training_jobs import BASE

provokes(SpecError, "4294967297")(lambda _: token_dtype(2**32 + 1))


def local(place: Place) -> None:
    place.patch.setattr(local_text, "_library", lambda: place.folder)
    for split in ("train", "held_out"):
        list(CORPORA.parse({"name": "local_text"}, "corpus").documents(split, {}))  # type: ignore[arg-type]


provokes(DataError)(local)


def stream(place: Place, entries: list[dict[str, Any]], **settings: Any) -> None:
    """Read a data set of one file."""
    write(place.folder / "a.jsonl", entries)
    asked = CORPORA.parse({"name": "streamed", "folder": "mine", **settings}, "corpus")
    asked.digest({"mine": place.folder})
    list(asked.documents("train", {"mine": place.folder}))


ROSE = {"text": "A rose."}


@provokes(DataError, "a.csv")
def _(place: Place) -> None:
    (place.folder / "a.csv").write_text("text\n", encoding="utf-8")
    stream(place, [ROSE], files=["*"])


provokes(DataError, "*.parquet")(lambda place: stream(place, [ROSE], files=["*.parquet"]))
provokes(DataError, "content")(lambda place: stream(place, [{"content": "A rose."}]))
provokes(DataError, "meta.source")(
    lambda place: stream(place, [ROSE | {"meta": {"set": "poems"}}], domain_field="meta.source")
)


@provokes(DataError, "'text' of type string")
def _(place: Place) -> None:
    write(place.folder / "a.parquet", [ROSE])
    asked = CORPORA.parse({"name": "streamed", "text_field": "text.body"}, "corpus")
    list(asked.documents("train", {"text": place.folder}))


provokes(DataError, "a.jsonl:2")(lambda place: stream(place, [ROSE, {"text": None}]))


@provokes(DataError, "streamed")
def _(place: Place) -> None:
    write(place.folder / "text" / "a.jsonl", [{"text": ""}])
    asked = CORPORA.parse({"name": "streamed", "held_out_percent": 1e-9}, "corpus")
    assert isinstance(asked, StreamedCorpus)
    (place.folder / "out").mkdir()
    write_shards(
        asked,
        BASE.tokenizer(None),
        max_ids=BASE.max_ids,
        folders={"text": place.folder / "text"},
        progress=place.folder / "progress",
        out=place.folder / "out",
        workers=1,
        report=lambda _: None,
    )
