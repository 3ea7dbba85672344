"""Provocations of study files and the registry."""

from __future__ import annotations

from typing import Any

import yaml
from pydantic import BaseModel, ValidationError, model_validator

from lce_core.methods import METHODS
from lce_core.models import MODELS
from lce_core.registry import MARK, Registry
from lce_core.spec_errors import spec_error
from lce_core.study.plain_yaml import MAX_CHARS, plain_yaml
from lce_core.study.plan import compile_study
from lce_core.study.pricing.speed import speed_of
from lce_core.study.study_file import load_study, parse_study
from tests.support.errors.provocations import Place, Table
from tests.support.free_steps import free_step
from tests.support.toy_study import TOY

PROVOCATIONS = Table()
provokes = PROVOCATIONS
LLAMA = MODELS.parse({"name": "llama2_7b"}, "base_models[0]")


def study(says: str, file: str = "study_file", **changes: Any) -> None:
    """Registers an edit of the toy study that cannot be read; None leaves a key out."""
    edited = {**TOY, **changes}
    text = yaml.safe_dump({key: value for key, value in edited.items() if value is not None})
    provokes(f"lce_core/study/{file}.py", says)(lambda _: parse_study(text, "my.yaml"))


study("a key of a study", metods=[])
study("a mapping or a name", corpus=3)
study("a list of at least one", seeds=[])
study("lengths of the benchmark", benchmarks=[{"name": "passkey"}])
study("tasks of", benchmarks=[{"name": "passkey", "lengths": [128], "tasks": ["twin"]}])
study("more than once", "spec", seeds=[1, 1])
study("a name that no registered", "spec", base_models=[{"name": "hub_model", "label": "phi2"}])
study("inference only", "spec", methods=[{"name": "self_extend", "tuned": True}])
study("nothing without training", "spec", methods=[{"name": "landmark"}])
study(
    "positions of training are rounded", "spec", methods=[{"name": "pi", "train_positions": "bf16"}]
)
study("no cosine is rounded", "spec", evaluation={"rotation": "stock"})
study("the rows of {variant.name}", "spec", target_context=500)
study(
    "where states may be bf16",
    "spec",
    training={**TOY["training"], "state_precision": "fp32_or_bf16"},
)
study("which is trained", "spec", training=None)
study("from 0 to 2^63", "spec", seeds=[-1])
study("a tuned variant where training", "spec", methods=[{"name": "pi", "train_length": 128}])
YARN, PI = {"name": "yarn", "tuned": True}, {"name": "pi", "tuned": True}
study("a tuned entry of methods", "spec", methods=[{**YARN, "start_from": "pi"}, "pi"])
study(
    "a circle",
    "spec",
    methods=[{**YARN, "start_from": "pi-tuned"}, {**PI, "start_from": "yarn-tuned"}],
)
PASSKEY = {"name": "passkey"}
PREDICTED = {"better": "yarn", "than": ["pi"], "benchmark": "passkey"}
for _says, _change in {
    "one of the two": {"worse": "yarn"},
    "other methods of the study": {"than": ["yarn"]},
    "{what} of the study": {"benchmark": "passkeys"},
    "a benchmark that evaluates both": {"lengths": [500]},
}.items():
    study(_says, "expectation", expects=[{**PREDICTED, **_change}])
PIS = [{"name": "pi", "label": f"pi_{number}"} for number in range(100)]
study(
    "pairs of methods at one length",
    "spec",
    methods=["yarn", *PIS],
    benchmarks=[{**PASSKEY, "lengths": [*range(128, 229)]}],
    expects=[{**PREDICTED, "than": [one["label"] for one in PIS]}],
)
study(
    "those of tuned ones", "spec", benchmarks=[{**PASSKEY, "lengths": [128], "methods": ["yarn_2"]}]
)
study(
    "once for each method",
    "spec",
    benchmarks=[{**PASSKEY, "lengths": [128]}, {**PASSKEY, "lengths": [128, 256]}],
)
study(
    "write several studies",
    "spec",
    seeds=list(range(1000)),
    benchmarks=[{**PASSKEY, "lengths": list(range(1, 300))}],
)
study("the name of a recipe", "recipes", training={"recipe": "yan"})


@provokes("lce_core/study/study_file.py", "got nothing; expected a value for this key")
def _(_: Place) -> None:
    parse_study(yaml.safe_dump({key: TOY[key] for key in TOY if key != "seeds"}), "my.yaml")


@provokes("lce_core/study/study_file.py", "start with `study: name`")
def _(_: Place) -> None:
    parse_study("- 1", "my.yaml")


@provokes("lce_core/study/plain_yaml.py", "check that it is the right file")
def _(_: Place) -> None:
    plain_yaml("x" * (MAX_CHARS + 1), "my.yaml")


@provokes("lce_core/study/plain_yaml.py", "write it shorter")
def _(_: Place) -> None:
    plain_yaml("[" * 40 + "]" * 40, "my.yaml")


@provokes("lce_core/store/steps.py", "a folder is named after it")
def _(_: Place) -> None:
    free_step("rows", "a" * 300, {}, {})


@provokes("lce_core/study/plain_yaml.py", "plain YAML")
def _(_: Place) -> None:
    parse_study("study: a\nstudy: b\n", "my.yaml")


@provokes("lce_core/study/study_file.py", "a readable study file")
def _(place: Place) -> None:
    load_study(place.folder / "none.yaml")


@provokes("lce_core/study/study_file.py", "which is not UTF-8")
def _(place: Place) -> None:
    (place.folder / "a.yaml").write_bytes(b"\xff")
    load_study(place.folder / "a.yaml")


@provokes("lce_core/study/planned_training.py", "less than one step")
def _(_: Place) -> None:
    compile_study(parse_study(yaml.safe_dump({**TOY, "train_tokens": 1}), "my.yaml"), {})


@provokes("lce_core/study/plan.py", "a run of which the model's weights are all")
def _(_: Place) -> None:
    methods = [{"name": "clex", "tuned": True}, {**YARN, "start_from": "clex-tuned"}]
    compile_study(parse_study(yaml.safe_dump({**TOY, "methods": methods}), "my.yaml"), {})


@provokes("lce_core/study/pricing/speed.py", "one of {', '.join(DEVICE_TYPES)}, cpu")
def _(place: Place) -> None:
    speed_of("tpu", [])


@provokes("lce_core/registry.py", "the name of a {kind}")
def _(_: Place) -> None:
    METHODS.parse({"name": "yan"}, "methods[0]")


@provokes("lce_core/registry.py", "an entry with a name")
def _(_: Place) -> None:
    METHODS.parse({}, "methods[0]")


@provokes("lce_core/spec_errors.py", "an unknown key")
def _(_: Place) -> None:
    METHODS.parse({"name": "yarn", "beta_fst": 1.0}, "methods[0]")


@provokes("lce_core/spec_errors.py", "_expectation(")
def _(_: Place) -> None:
    METHODS.parse({"name": "yarn", "beta_fast": -1.0}, "methods[0]")


@provokes("lce_core/spec_errors.py", "a value for this key")
def _(_: Place) -> None:
    parse_study(yaml.safe_dump({**TOY, "training": {"learning_rate": 0.1}}), "my.yaml")


class _TheirModel(BaseModel):
    """A rule of somebody else's plug-in: one sentence, no parts."""

    size: int = 1

    @model_validator(mode="after")
    def _odd(self) -> _TheirModel:
        raise ValueError("size is odd")


@provokes("lce_core/spec_errors.py", "values that fit together")
def _(_: Place) -> None:
    try:
        _TheirModel(size=2)
    except ValidationError as error:
        raise spec_error(error, "methods[0]", _TheirModel) from None


@provokes("lce_core/registry.py", "the installed version")
def _(_: Place) -> None:
    METHODS.from_identity({"name": "pi", "version": 0})


def plugin(place: Place, content: str) -> None:
    """Loads a file of methods from a folder of its own."""
    (place.folder / "provoked.py").write_text(content, encoding="utf-8")
    place.patch.syspath_prepend(place.folder.parent)
    (place.folder / "__init__.py").touch()
    Registry(place.folder.name, "METHOD", METHODS.kind).load("provoked")


@provokes("lce_core/registry.py", "a file that Python can import")
def _(place: Place) -> None:
    plugin(place, "import nothing_of_this_name\n")


@provokes("lce_core/registry.py", "a plug-in without {part}")
def _(place: Place) -> None:
    plugin(place, "METHOD = 1\n")


@provokes("lce_core/registry.py", "a subclass of")
def _(place: Place) -> None:
    plugin(place, "METHOD = 1\nSOURCE = 1\nEVIDENCE = ()\nVERSION = 1\n")


@provokes("lce_core/registry.py", "lines that are written")
def _(place: Place) -> None:
    plugin(place, f"METHOD = 1  {MARK}\n")


@provokes("lce_core/registry.py", "which hides")
def _(place: Place) -> None:
    plugin(
        place,
        "import warnings\n"
        "from lce_core.methods import Method\n"
        "with warnings.catch_warnings():\n"
        "    warnings.simplefilter('ignore')\n"
        "    class Hiding(Method):\n"
        "        check: int = 1\n"
        "METHOD = Hiding\nSOURCE = 1\nEVIDENCE = ()\nVERSION = 1\n",
    )


@provokes("lce_core/registry.py", "no EXAMPLES")
def _(place: Place) -> None:
    plugin(
        place,
        "from lce_core.methods import Method\n"
        "class Sized(Method):\n    size: int\n"
        "METHOD, SOURCE, EVIDENCE, VERSION = Sized, 1, (), 1\n",
    )


@provokes("lce_core/study/study_file.py", "a path that is not UTF-8")
def _(place: Place) -> None:
    load_study(place.folder / "my\udcff.yaml")
