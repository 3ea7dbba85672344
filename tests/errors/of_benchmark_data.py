from lce_core.benchmarks._data import DataSet
from lce_core.errors import DataError, UnavailableError
from tests.support.errors.provocations import Place, provokes
from tests.support.errors.provoked_cells import evaluate

SET = DataSet("letters", ("*.txt",), "example.org")


@provokes(DataError, "a.txt")
def _(place: Place) -> None:
    (place.folder / "a.txt").mkdir()
    SET.digest({"letters": place.folder})


@provokes(UnavailableError, "no document that fills")
def _(place: Place) -> None:
    settings = {"domains": ["code"], "truncate": True, "min_document_tokens": 1000}
    evaluate("perplexity_documents", 2000, settings, task="code")(place)
