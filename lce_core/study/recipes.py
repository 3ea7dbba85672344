"""Load published training recipes, used as `training: {recipe: yarn}` in a study file.

Each file of `lce_core/recipes` holds one recipe. Every value carries its source (table, section or
commit) and any contradicting statement. Keys in the study override keys of the recipe. Recipes are
resolved when the study is read, so fingerprints contain plain values: a study that writes out the
same values has the same ids.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import Any

import yaml
from pydantic import Field

from lce_core.errors import SpecError, did_you_mean
from lce_core.recipe import Section

_SUFFIX = ".yaml"


class Fact(Section):
    """One value of a recipe with its source."""

    value: int | float | str
    source: str = Field(min_length=1)
    """Table or section of a paper, or repository@commit and file."""
    against: str | None = Field(default=None, min_length=1)
    """Contradicting value elsewhere in the same work, with its place."""


class Recipe(Section):
    """The content of one file in `lce_core/recipes`."""

    about: str
    """The paper or project whose training the recipe describes."""
    training: dict[str, Fact]
    """Values by key of `Training`."""
    upsampling: dict[str, Fact] = Field(default_factory=dict)
    """Values by key of `Upsampling`. They apply to a whole study, not to a single method."""
    train_tokens: Fact | None = None
    not_given: dict[str, str] = Field(default_factory=dict)
    """Details that the source omits or a study file cannot express, by key or topic."""

    def facts(self) -> Iterator[tuple[str, Fact]]:
        """Yield every value with its key in a study file, such as "training.precision"."""
        yield from ((f"training.{key}", fact) for key, fact in self.training.items())
        if self.train_tokens is not None:
            yield "train_tokens", self.train_tokens
        yield from ((f"upsampling.{key}", fact) for key, fact in self.upsampling.items())

    def of_entry(self) -> dict[str, Any]:
        """Return what the recipe sets in a `methods` entry beside `training`: `train_tokens`."""
        return {} if self.train_tokens is None else {"train_tokens": self.train_tokens.value}

    def of_study(self) -> dict[str, Any]:
        """Return what the recipe sets in a study beside `training`: train_tokens and upsampling."""
        upsampling = {"upsampling": _values(self.upsampling)} if self.upsampling else {}
        return {**self.of_entry(), **upsampling}


def recipe_names() -> list[str]:
    """Return the names of all recipes, sorted."""
    folder = files("lce_core") / "recipes"
    names = (file.name for file in folder.iterdir())
    return sorted(name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX))


def load_recipe(name: str, where: str = "recipe") -> Recipe:
    """Load the recipe of this name; `where` names the key in errors.

    Raises:
      SpecError: if there is no such recipe; the error suggests the most similar name.
    """
    known = recipe_names()
    if name not in known:
        raise SpecError(where, repr(name), "the name of a recipe", did_you_mean(name, known))
    text = (files("lce_core") / "recipes" / f"{name}{_SUFFIX}").read_text(encoding="utf-8")
    return Recipe.model_validate(yaml.safe_load(text))


def resolved(training: Mapping[str, Any], where: str) -> tuple[Recipe | None, dict[str, Any]]:
    """Replace the key `recipe` of a `training` mapping by the values of the named recipe.

    Returns:
      The named recipe, or None, and the mapping with the recipe's values filled in. The mapping's
      own keys override the recipe's.
    """
    if "recipe" not in training:
        return None, dict(training)
    recipe = load_recipe(str(training["recipe"]), f"{where}.recipe")
    own = {key: value for key, value in training.items() if key != "recipe"}
    return recipe, {**_values(recipe.training), **own}


def _values(facts: Mapping[str, Fact]) -> dict[str, Any]:
    return {key: fact.value for key, fact in facts.items()}
