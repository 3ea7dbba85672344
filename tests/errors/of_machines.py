from typing import Any

import yaml

from flows.settings import joined_machine, make_execution
from lce_core.errors import SpecError
from lce_core.training.run import run
from tests.errors.files import write
from tests.support.errors.provocations import Place, provokes
from tests.support.training_jobs import job_maker, packed_rows, silent

TWO = {
    "num_machines": 2,
    "num_processes": 4,
    "main_process_ip": "10.0.0.1",
    "main_process_port": 29500,
}


def settings(place: Place, options: dict[str, Any] | None = None, **changes: Any) -> None:
    file = write(place, "a.yaml", yaml.safe_dump({**TWO, **changes})) / "a.yaml"
    make_execution({"accelerate_config": file, "device": "cpu", **(options or {})})


for changes, value in (
    ({"fsdp_config": {"fsdp_version": 1}}, "a.yaml.fsdp_config.fsdp_version: got 1"),
    ({"mixed_precision": "fp16"}, "a.yaml.mixed_precision: got 'fp16'"),
    ({"deepspeed_config": {"zero_stage": 3}}, "a.yaml.deepspeed_config: got"),
    ({"num_processes": 3}, "a.yaml.num_processes: got 3"),
    ({"main_process_ip": None}, "main_process_port: got None"),
    ({"machine_rank": 1}, "machine_rank: got 1"),
):
    provokes(SpecError, value)(lambda place, changes=changes: settings(place, **changes))

provokes(SpecError, "execution.processes: got 4")(lambda place: settings(place, {"processes": 4}))
provokes(SpecError, "num_machines: got 2 with training_slots 2")(
    lambda place: settings(place, {"training_slots": 2})
)


provokes(SpecError, "--machine-rank: got 2 of 2")(
    lambda place: joined_machine(write(place, "a.yaml", yaml.safe_dump(TWO)) / "a.yaml", 2)
)


@provokes(SpecError, "mixed_precision: got bf16")
def _(place: Place) -> None:
    machine = {"num_processes": 2, "mixed_precision": "bf16"}
    rows = packed_rows(place.folder)
    run(job_maker(rows, place.folder)(processes=2, accelerate_config=machine), silent)
