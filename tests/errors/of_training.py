import json
from typing import Any

import numpy as np
import torch

from lce_core.contracts.tiny_models import BASES, stock
from lce_core.data.tokenised import MANIFEST
from lce_core.errors import DataError, SpecError
from lce_core.training import sharding
from lce_core.training.run import run
from tests.support.errors.provocations import Place, provokes
from tests.support.training_jobs import job_maker, packed_rows, silent


def train(place: Place, training: dict[str, Any] | None = None, **changes: Any) -> None:
    rows = place.folder / "rows"
    rows.mkdir()
    run(job_maker(packed_rows(rows), place.folder)(training, **changes), silent)


@provokes(SpecError, "execution.processes: got 2")
def _(place: Place) -> None:
    place.patch.setattr("lce_core.devices.count_accelerators", lambda: 1)
    place.patch.setattr(torch.cuda, "device_count", lambda: 1)
    train(place, processes=2, device="cuda")


@provokes(SpecError, "1 cpu")
def _(place: Place) -> None:
    place.patch.setattr("lce_core.training.run.memory_bytes", lambda device: 10**6)
    train(place)


@provokes(DataError, "rows of step 1")
def _(place: Place) -> None:
    rows = packed_rows(place.folder)
    manifest = json.loads((rows / MANIFEST).read_text(encoding="utf-8"))
    (rows / MANIFEST).write_text(json.dumps({**manifest, "weighted": True}), encoding="utf-8")
    shape = (manifest["num_rows"], manifest["row_length"])
    np.zeros(shape, np.uint8).tofile(rows / "weights.bin")
    run(job_maker(rows, place.folder)(), silent)


@provokes(DataError, "but another.weight of shape [2, 3] in the loaded model")
def _(place: Place) -> None:
    layout = json.dumps([("another.weight", 2, 3)])
    sent = iter([stock(BASES[0]).config.to_json_string(use_diff=False), layout])
    place.patch.setattr(sharding.dist, "get_rank", lambda: 1)
    place.patch.setattr(sharding, "_broadcast_text", lambda *_: next(sent))
    sharding.build_on_main(lambda: stock(BASES[0]), torch.device("cpu"), torch.float32)
