import json
from pathlib import Path
from typing import Any

import yaml

from lce.keeping.exporting import export_variant
from lce_core.errors import DataError, SpecError, StoreError
from lce_core.execution import Execution
from lce_core.export.folder import export
from lce_core.export.stock_form import Subject, stock_form
from lce_core.methods import METHODS
from lce_core.models import MODELS
from lce_core.study.plan import compile_study
from lce_core.study.plan_checks import published_folder
from lce_core.study.study_file import parse_study
from tests.errors.files import write
from tests.support.errors.provocations import Place, provokes
from tests.support.toy_study import TOY
from tests.support.training_jobs import BASE

LLAMA = MODELS.parse({"name": "llama2_7b"}, "test")
CONFIG = {
    "model_type": "llama",
    "hidden_size": 96,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "vocab_size": 392,
    "max_position_embeddings": 512,
}


def subject(weights: Path) -> Subject:
    return Subject("toy", "pi", BASE, METHODS.load("pi")(), 512, weights)


for name, value in (
    ("landmark", "landmark"),
    ("self_extend", "GroupedNeighbour"),
    ("harpe", "harpe.rope_table: got different frequencies for each of 32"),
):
    provokes(SpecError, value)(lambda _, name=name: stock_form(METHODS.load(name)(), LLAMA, 32768))
provokes(SpecError)(lambda place: export(subject(write(place, "a")), place.folder))


@provokes(DataError, "model*.safetensors")
def _(place: Place) -> None:
    BASE.config().save_pretrained(place.folder / "weights")  # type: ignore[attr-defined]
    BASE.tokenizer(None).save_pretrained(place.folder / "weights")
    export(subject(place.folder / "weights"), place.folder / "out")


def exported(place: Place, select: str = "", precision: str | None = None, **changes: Any) -> None:
    file = str(write(place, "my.yaml", yaml.safe_dump({**TOY, **changes})) / "my.yaml")
    how = Execution(home=place.folder / "home")
    export_variant(file, how, place.folder / "out", select=select, length=None, precision=precision)


provokes(SpecError, "--precision: got fp16")(lambda place: exported(place, precision="fp16"))
provokes(SpecError, "--select: got cells of 81")(lambda place: exported(place))
provokes(SpecError, "toy_llama-yarn-tuned-s0")(
    lambda place: exported(place, "method=yarn,seed=0,frozen=false")
)
provokes(SpecError, "toy_llama, yarn")(
    lambda place: exported(place, methods=[{"name": "yarn", "checkpoint": "mine"}], seeds=[0])
)


def plan(folder: Path, entry: str = "pi") -> None:
    methods = [{"name": entry, "checkpoint": "mine"}]
    study = parse_study(yaml.safe_dump({**TOY, "methods": methods}), "my.yaml")
    compile_study(study, {}, {"mine": folder})


def planned(place: Place, entry: str) -> None:
    write(place, "weights/model.safetensors")
    plan(write(place, "weights/config.json", json.dumps(CONFIG)) / "weights", entry)


provokes(StoreError, "000000000000")(
    lambda place: published_folder("0" * 64, {"mine": write(place, "config.json", "{}")})
)
provokes(SpecError, "adapter_config.json")(
    lambda place: plan(write(place, "adapter_config.json", "{}"))
)
provokes(SpecError)(lambda place: plan(write(place, "pytorch_model.bin")))


provokes(SpecError, "weights/extension.safetensors")(lambda place: planned(place, "clex"))
provokes(SpecError, "weights/config.json: landmark_token_id: got None")(
    lambda place: planned(place, "landmark")
)


@provokes(SpecError, "checkpoint: mine with tuned:")
def _(_: Place) -> None:
    methods = [{"name": "pi", "tuned": True, "checkpoint": "mine"}]
    parse_study(yaml.safe_dump({**TOY, "methods": methods}), "my.yaml")
