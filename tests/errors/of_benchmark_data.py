"""Provocations of the data that benchmarks read."""

from pathlib import Path

from lce_core.benchmarks._data import DataSet
from lce_core.benchmarks.many_shot.trec import trec_questions
from lce_core.errors import DataError, UnavailableError
from tests.errors.files import write
from tests.support.data.subsets import state_rows
from tests.support.errors.provocations import Place, provokes
from tests.support.errors.provoked_cells import evaluate

SET = DataSet("letters", ("*.txt",), "example.org")


provokes(UnavailableError, "nobody/nothing")(
    lambda _: SET.files({"letters": Path(f"hub:nobody/nothing@{'0' * 40}")})
)


@provokes(DataError, "a.txt")
def _(place: Place) -> None:
    (place.folder / "a.txt").mkdir()
    SET.digest({"letters": place.folder})


@provokes(UnavailableError, "no document that fills")
def _(place: Place) -> None:
    settings = {"domains": ["code"], "truncate": True, "min_document_tokens": 1000}
    evaluate("perplexity_documents", 2000, settings, task="code")(place)


@provokes(DataError, "NUM:date")
def _(place: Place) -> None:
    write(place, "train.txt", "NUM:date\n")
    state_rows(write(place, "test.txt", "NUM:date When ?\n"), {"train.txt": 0, "test.txt": 1})
    trec_questions({"trec": place.folder})
