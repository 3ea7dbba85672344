from __future__ import annotations

from dataclasses import replace
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError, model_validator

from lce_core.errors import SpecError
from lce_core.methods import METHODS
from lce_core.models import Pretraining
from lce_core.models.toy_llama import ToyLlama
from lce_core.spec_errors import spec_error
from lce_core.study.plan import compile_study
from lce_core.study.study_file import parse_study
from tests.errors.files import write
from tests.support.errors.provocations import Place, provokes
from tests.support.plugin_copies import plugins_removed_after
from tests.support.toy_study import TOY


def study(value: str, **changes: Any) -> None:
    """Add a change of the toy study that makes it invalid."""
    text = yaml.safe_dump({**TOY, **changes})
    provokes(SpecError, value)(lambda _: parse_study(text, "my.yaml"))


study("my.yaml: corpus: got 3", corpus=3)
study(
    "my.yaml: benchmarks[0].tasks: got 'twin",
    benchmarks=[{"name": "passkey", "lengths": [128], "tasks": ["twin"]}],
)
study(
    "my.yaml: methods[0].train_positions: got bf16",
    methods=[{"name": "pi", "train_positions": "bf16"}],
)
study("my.yaml: evaluation.rotation", evaluation={"rotation": "stock"})
study("fp32_or_bf16", training={**TOY["training"], "state_precision": "fp32_or_bf16"})
study("training.param_dtype", training={**TOY["training"], "param_dtype": "bf16"})


CLEX, YARN = ({"name": name, "tuned": True} for name in ("clex", "yarn"))
for value, methods in (
    ("clex-tuned", [CLEX, YARN | {"start_from": "clex-tuned"}]),
    (
        "weights of yarn-tuned for landmark",
        [YARN, {"name": "landmark", "block": 16, "train_length": 128, "weights_of": "yarn-tuned"}],
    ),
):
    text = yaml.safe_dump({**TOY, "methods": methods})
    provokes(SpecError, value)(lambda _, text=text: compile_study(parse_study(text, "my.yaml"), {}))


class _MaskedBase(ToyLlama):
    def pretraining(self) -> Pretraining:
        own = super().pretraining()
        masked = own.training.model_copy(update={"document_masks": "restart"})
        return replace(own, training=masked)


@provokes(SpecError, "toy_llama.pretraining: got document_masks: restart")
def _(_: Place) -> None:
    toy = parse_study(yaml.safe_dump(TOY), "my.yaml")
    compile_study(toy.model_copy(update={"base_models": (_MaskedBase(),)}), {})


class _TheirModel(BaseModel):
    """A rule of somebody else's plug-in: one sentence, no parts."""

    size: int = 1

    @model_validator(mode="after")
    def _odd(self) -> _TheirModel:
        raise ValueError("size is odd")


@provokes(SpecError, "{'size': 2}")
def _(_: Place) -> None:
    try:
        _TheirModel(size=2)
    except ValidationError as error:
        raise spec_error(error, "methods[0]", _TheirModel) from None


def plugin(place: Place, content: str) -> None:
    """Load a file of methods from its own folder."""
    write(place, "provoked.py", content)
    with plugins_removed_after():
        METHODS.add_folder(place.folder)
        METHODS.load("provoked")


provokes(SpecError, "check")(
    lambda place: plugin(
        place,
        "import warnings\n"
        "from lce_core.methods import Method\n"
        "with warnings.catch_warnings():\n"
        "    warnings.simplefilter('ignore')\n"
        "    class Hiding(Method):\n"
        "        check: int = 1\n"
        "METHOD = Hiding\nSOURCE = 1\nEVIDENCE = ()\nVERSION = 1\n",
    )
)
provokes(SpecError, "provoked.py")(
    lambda place: plugin(
        place,
        "from lce_core.methods import Method\n"
        "class Sized(Method):\n    size: int\n"
        "METHOD, SOURCE, EVIDENCE, VERSION = Sized, 1, (), 1\n",
    )
)
