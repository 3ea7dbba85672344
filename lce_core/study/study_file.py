"""Read a study file: parse its YAML into a `StudySpec`.

Each key is validated separately, so that every error names the file and the key.

`training: {recipe: yarn}` names a published recipe, a file in `lce_core/recipes` with a paper's
training settings, the source of every value and any statement that contradicts it. Keys in the
study override those of the recipe. Fingerprints contain the values and not the recipe's name.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, Field, ValidationError

from lce_core.benchmarks import BENCHMARKS
from lce_core.corpora import CORPORA
from lce_core.errors import SpecError, did_you_mean, require_known
from lce_core.methods import METHODS
from lce_core.models import MODELS
from lce_core.recipe import Evaluation, Section, Training, Upsampling
from lce_core.spec_errors import spec_error
from lce_core.store.identity import canonical_json
from lce_core.store.odd_files import require_text, writable
from lce_core.study.expectation import Expectation
from lce_core.study.plain_yaml import beginning_of, plain_yaml
from lce_core.study.spec import MAX_LABEL, BenchmarkEntry, MethodEntry, StudySpec
from lce_core.study.tuning import BEST, Tune

T = TypeVar("T")
S = TypeVar("S", bound=BaseModel)

_SUFFIX = ".yaml"


class Fact(Section):
    """One value of a recipe with its source."""

    value: int | float | str
    source: str = Field(min_length=1)
    """Table or section of a paper, or repository@commit and file."""
    against: str | None = Field(default=None, min_length=1)
    """Contradicting value elsewhere in the same paper or code, with its source."""


class Recipe(Section):
    """The content of one file in `lce_core/recipes`."""

    about: str
    """The paper or project that published these settings."""
    training: dict[str, Fact]
    upsampling: dict[str, Fact] = Field(default_factory=dict)
    """Values and sources, by key of `Upsampling`. They apply only if the study's own `training`
    names the recipe, because all methods share the training text."""
    train_tokens: Fact | None = None
    not_given: dict[str, str] = Field(default_factory=dict)
    """Details that the paper omits or that a study file cannot express, by key or topic."""

    def facts(self) -> Iterator[tuple[str, Fact]]:
        yield from ((f"training.{key}", fact) for key, fact in self.training.items())
        if self.train_tokens is not None:
            yield "train_tokens", self.train_tokens
        yield from ((f"upsampling.{key}", fact) for key, fact in self.upsampling.items())

    def of_entry(self) -> dict[str, Any]:
        return {} if self.train_tokens is None else {"train_tokens": self.train_tokens.value}

    def of_study(self) -> dict[str, Any]:
        upsampling = {"upsampling": _values(self.upsampling)} if self.upsampling else {}
        return {**self.of_entry(), **upsampling}


def recipe_names() -> list[str]:
    folder = files("lce_core") / "recipes"
    names = (file.name for file in folder.iterdir())
    return sorted(name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX))


def load_recipe(name: str, where: str = "recipe") -> Recipe:
    require_known(where, [name], "the name of a recipe", recipe_names())
    text = (files("lce_core") / "recipes" / f"{name}{_SUFFIX}").read_text(encoding="utf-8")
    return Recipe.model_validate(yaml.safe_load(text))


def resolved(training: Mapping[str, Any], where: str) -> tuple[Recipe | None, dict[str, Any]]:
    """Replace the key `recipe` by the recipe's values, which other keys override; return both."""
    if "recipe" not in training:
        return None, dict(training)
    recipe = load_recipe(str(training["recipe"]), f"{where}.recipe")
    own = {key: value for key, value in training.items() if key != "recipe"}
    return recipe, {**_values(recipe.training), **own}


def _values(facts: Mapping[str, Fact]) -> dict[str, Any]:
    return {key: fact.value for key, fact in facts.items()}


def load_study(path: Path) -> StudySpec:
    where = writable(str(path))
    if where != str(path):
        raise SpecError(
            where,
            "a path with bytes that are not UTF-8",
            "a path in UTF-8",
            "rename the file or its folder",
        )
    try:
        text = beginning_of(path)
    except OSError as error:
        raise SpecError(
            where,
            f"a file that cannot be read ({error.strerror})",
            "a readable study file",
            "check the path and the file's permissions",
        ) from None
    except UnicodeDecodeError as error:
        raise SpecError(
            where,
            f"byte {error.start}, which is not UTF-8",
            "a study file in UTF-8",
            "save it as UTF-8",
        ) from None
    return parse_study(text, where)


def parse_study(text: str, where: str) -> StudySpec:
    data = plain_yaml(text, where)
    if not isinstance(data, dict):
        raise SpecError(
            where,
            "an empty file" if data is None else f"a value of type {type(data).__name__}",
            "a mapping with keys such as `study` and `methods`",
            "start the file with `study: NAME`",
        )
    canonical_json(data, f"{where}:")
    require_text(data, f"{where}:")
    return _study(data, where)


def _study(data: dict[str, Any], where: str) -> StudySpec:
    known = list(StudySpec.model_fields)
    for key in data:
        if key not in known:
            raise SpecError(
                f"{where}: {key}",
                "an unknown key",
                "a key of a study file",
                did_you_mean(str(key), known),
            )
    at = f"{where}: "
    training: dict[str, Any] = {}
    if "training" in data:
        place = f"{at}training"
        recipe, training = resolved(_mapping(data["training"], place), place)
        data = {**(recipe.of_study() if recipe is not None else {}), **data, "training": training}
    for key, field in StudySpec.model_fields.items():
        if field.is_required() and key not in data:
            raise SpecError(f"{at}{key}", "nothing", "a value for this key", f"add `{key}:`")
    parsers: dict[str, Callable[[Any, str], object]] = {
        "corpus": lambda given, place: CORPORA.parse(_mapping(given, place), place),
        "base_models": partial(_parsed, parse=MODELS.parse),
        "methods": partial(_parsed, parse=partial(_method, training=training)),
        "benchmarks": partial(_parsed, parse=_benchmark),
        "seeds": _tuple,
        "training": partial(_section, section=Training),
        "upsampling": partial(_section, section=Upsampling),
        "evaluation": partial(_section, section=Evaluation),
        "tune": partial(_section, section=Tune),
        "looks": lambda given, place: None if given is None else _tuple(given, place),
        "expects": partial(_parsed, parse=partial(_section, section=Expectation)),
    }
    own = {key: parse(data[key], f"{at}{key}") for key, parse in parsers.items() if key in data}
    fields: dict[str, Any] = data | own
    if "tune" in data:
        common = fields.get("training"), fields["tune"].field
        fields["methods"] = tuple(_with_best(fields["methods"], *common))
    if isinstance(margins := data.get("short_context_margins"), list):
        fields["short_context_margins"] = tuple(margins)
    return _validated(StudySpec, fields, f"{where}:")


_OF_ENTRY = frozenset(MethodEntry.model_fields) - {"method", "at_best"}
"""Keys of every entry of `methods`; a method's parameter of the same name takes precedence."""


def _method(entry: dict[str, Any], where: str, training: Mapping[str, Any]) -> MethodEntry:
    named = entry.get("name")
    of_method = METHODS.load(named, where).model_fields if isinstance(named, str) else {}
    own = {key: entry[key] for key in entry if key in _OF_ENTRY and key not in of_method}
    rest = {key: entry[key] for key in entry if key not in own}
    method = METHODS.parse(rest, where)
    fields: dict[str, Any] = {"label": method.plugin_name, **own}
    if "training" in own:
        at = f"{where}.training"
        recipe, changes = resolved(_mapping(own["training"], at), at)
        if recipe is None:
            changes = {**training, **changes}
        else:
            fields = {**recipe.of_entry(), **fields}
        fields["training"] = _section(changes, at, Training)
    if "upsampling" in own:
        fields["upsampling"] = _section(own["upsampling"], f"{where}.upsampling", Upsampling)
    return _validated(MethodEntry, {"method": method, **fields}, where)


def _with_best(
    methods: Sequence[MethodEntry], training: Training | None, field: str
) -> Iterator[MethodEntry]:
    """Yield the entries, each tuned one followed by its copy that trains with its own best value.

    An entry whose own `training` sets another value than the study's has no copy.
    """
    for entry in methods:
        yield entry
        own = entry.training or training
        if not entry.tuned or training is None or getattr(own, field) != getattr(training, field):
            continue
        label = f"{entry.label}{BEST}"
        if len(label) > MAX_LABEL:
            raise SpecError(
                "tune",
                f"label {label} of {len(label)} characters",
                f"at most {MAX_LABEL} characters, {len(BEST)} of them for {BEST!r}",
                f"give {entry.name} a shorter `label`",
            )
        yield entry.model_copy(update={"label": label, "at_best": True})


def _benchmark(entry: dict[str, Any], where: str) -> BenchmarkEntry:
    rest = {key: entry[key] for key in entry if key not in ("lengths", "tasks", "methods")}
    benchmark = BENCHMARKS.parse(rest, where)
    if "lengths" not in entry:
        raise SpecError(
            f"{where}.lengths",
            "nothing",
            "the context lengths to evaluate, in tokens",
            "add, for example, `lengths: [4096, 8192]`",
        )
    tasks = _tuple(entry.get("tasks", list(benchmark.tasks())), f"{where}.tasks")
    known = benchmark.tasks()
    require_known(f"{where}.tasks", tasks, f"a task of {benchmark.plugin_name}", known)
    lengths = _tuple(entry["lengths"], f"{where}.lengths")
    fields = {"benchmark": benchmark, "lengths": lengths, "tasks": tasks}
    if "methods" in entry:
        fields["methods"] = _tuple(entry["methods"], f"{where}.methods")
    return _validated(BenchmarkEntry, fields, where)


def _validated(section: type[S], fields: dict[str, Any], where: str) -> S:
    try:
        return section.model_validate(fields)
    except ValidationError as error:
        raise spec_error(error, where, section) from None


def _section(entry: object, where: str, section: type[S]) -> S:
    # JSON mode accepts YAML's lists for tuples and stays strict about numbers.
    try:
        return section.model_validate_json(canonical_json(_mapping(entry, where), where))
    except ValidationError as error:
        raise spec_error(error, where, section) from None


def _parsed(
    entries: object, where: str, parse: Callable[[dict[str, Any], str], T]
) -> tuple[T, ...]:
    listed = _tuple(entries, where)
    return tuple(
        parse(_mapping(entry, f"{where}[{index}]"), f"{where}[{index}]")
        for index, entry in enumerate(listed)
    )


def _tuple(value: object, where: str) -> tuple[Any, ...]:
    if not isinstance(value, list) or not value:
        raise SpecError(
            where, repr(value), "a list with at least one entry", "write the entries in [ ]"
        )
    return tuple(value)


def _mapping(value: object, where: str) -> dict[str, Any]:
    if isinstance(value, str):
        return {"name": value}
    if not isinstance(value, dict):
        raise SpecError(
            where, repr(value), "a mapping or a name", "write, for example, {name: NAME}"
        )
    return value
