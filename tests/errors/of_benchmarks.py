from lce_core.benchmarks.needle.text import essay_tokens
from lce_core.benchmarks.ruler._documents import read_hotpot
from lce_core.benchmarks.ruler._haystack import Haystack
from lce_core.errors import DataError, UnavailableError
from tests.errors.files import write
from tests.support.errors.provocations import provokes
from tests.support.errors.provoked_cells import bare

provokes(UnavailableError, "data set 'essays")(
    lambda place: essay_tokens(bare(data_folders={"essays": write(place, "a.txt", " ")}))
)
provokes(DataError, "hotpot_dev_distractor_v1.json")(
    lambda place: read_hotpot({"hotpotqa": write(place, "hotpot_dev_distractor_v1.json", "[]")})
)
provokes(UnavailableError, "data set 'essays")(lambda _: Haystack(" ", "data set 'essays'"))
