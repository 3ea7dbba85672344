from lce_core.benchmarks._data import DataSet
from lce_core.benchmarks.needle import essay_tokens
from lce_core.benchmarks.ruler._documents import read_hotpot
from lce_core.benchmarks.ruler._niah import Haystack
from lce_core.errors import DataError, UnavailableError
from tests.errors.files import write
from tests.support.errors.provocations import Place, provokes
from tests.support.errors.provoked_cells import bare, evaluate

provokes(UnavailableError, "data set 'essays")(
    lambda place: essay_tokens(bare(data_folders={"essays": write(place, "a.txt", " ")}))
)
provokes(DataError, "hotpot_dev_distractor_v1.json")(
    lambda place: read_hotpot({"hotpotqa": write(place, "hotpot_dev_distractor_v1.json", "[]")})
)
provokes(UnavailableError, "data set 'essays")(lambda _: Haystack(" ", "data set 'essays'"))


SET = DataSet("letters", ("*.txt",), "example.org")


@provokes(DataError, "a.txt")
def _(place: Place) -> None:
    (place.folder / "a.txt").mkdir()
    SET.digest({"letters": place.folder})


@provokes(UnavailableError, "no document that fills")
def _(place: Place) -> None:
    settings = {"domains": ["code"], "truncate": True, "min_document_tokens": 1000}
    evaluate("perplexity_documents", 2000, settings, task="code")(place)
