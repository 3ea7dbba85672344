from typing import Any

from lce_core.errors import DataError, SpecError
from lce_core.prompts import _require_data, rebuilt_cell
from lce_core.store.artifacts import Store
from tests.support.asked_cells import write_artifact, write_samples
from tests.support.cells import TOY, benchmark
from tests.support.errors.provocations import Place, provokes
from tests.support.errors.provoked_cells import bare

PRINT, TEXT = "ab" * 32, "cd" * 32
NEEDLE = benchmark("needle", profile="tiny", trials=1)


def made(place: Place, **spec: Any) -> Store:
    """A store with the record of a cell that nobody has computed."""
    cell: dict[str, Any] = {
        "benchmark": NEEDLE.identity(),
        "base_model": TOY.identity(),
        "task": "single",
        "eval_length": 128,
    }
    folder = place.folder / "artifacts" / "cell" / f"made-{PRINT[:12]}"
    write_samples(folder, {"sample": 0, "reference": "none", "num_prompt_tokens": 127})
    write_artifact(place.folder, "cell", PRINT, spec=cell | spec, parents={"held_out": TEXT})
    return Store(place.folder)


OF_MINE = {"name": "of_mine", "version": 1}
provokes(DataError, "needle")(
    lambda place: rebuilt_cell(made(place, benchmark="needle"), PRINT[:12])
)
provokes(SpecError, "of_mine")(
    lambda place: rebuilt_cell(made(place, benchmark=OF_MINE), PRINT[:12])
)


@provokes(DataError, "abababababab")
def _(place: Place) -> None:
    store = made(place, data="ef" * 32)
    (_, record), *_ = store.records()
    _require_data(record, NEEDLE, bare("single"))
