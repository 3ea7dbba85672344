"""Published training recipes as data: `training: {recipe: yarn}` in a study file.

Each file of `lce_core/recipes` holds one recipe; every value stands there with the table, section
or commit it is taken from, and with what contradicts it. A study's own keys come before a recipe's.
Recipes are resolved when a study is read, so that identity holds plain values: a study that writes
the same values out has the same ids.
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
    """One value of a recipe and where it is from."""

    value: int | float | str
    source: str = Field(min_length=1)
    """Table or section of a paper, or repository@commit and file."""
    against: str | None = Field(default=None, min_length=1)
    """What another place of the same work says instead."""


class Recipe(Section):
    """A file of `lce_core/recipes`."""

    about: str
    """Whose training this is."""
    training: dict[str, Fact]
    """By key of `Training`."""
    upsampling: dict[str, Fact] = Field(default_factory=dict)
    """By key of `Upsampling`; of a study, not of one of its methods."""
    train_tokens: Fact | None = None
    not_given: dict[str, str] = Field(default_factory=dict)
    """What the source leaves open, or what a study cannot say, by key or word."""

    def facts(self) -> Iterator[tuple[str, Fact]]:
        """All values by the key they have in a study file."""
        yield from ((f"training.{key}", fact) for key, fact in self.training.items())
        if self.train_tokens is not None:
            yield "train_tokens", self.train_tokens
        yield from ((f"upsampling.{key}", fact) for key, fact in self.upsampling.items())

    def of_entry(self) -> dict[str, Any]:
        """Keys beside `training` that an entry of `methods` takes from the recipe."""
        return {} if self.train_tokens is None else {"train_tokens": self.train_tokens.value}

    def of_study(self) -> dict[str, Any]:
        """Keys beside `training` that a study takes from the recipe."""
        upsampling = {"upsampling": _values(self.upsampling)} if self.upsampling else {}
        return {**self.of_entry(), **upsampling}


def recipe_names() -> list[str]:
    """All recipes, sorted."""
    folder = files("lce_core") / "recipes"
    names = (file.name for file in folder.iterdir())
    return sorted(name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX))


def load_recipe(name: str, where: str = "recipe") -> Recipe:
    """The recipe of this name.

    Raises:
      SpecError: there is none, with the most similar one.
    """
    known = recipe_names()
    if name not in known:
        raise SpecError(where, repr(name), "the name of a recipe", did_you_mean(name, known))
    text = (files("lce_core") / "recipes" / f"{name}{_SUFFIX}").read_text(encoding="utf-8")
    return Recipe.model_validate(yaml.safe_load(text))


def resolved(training: Mapping[str, Any], where: str) -> tuple[Recipe | None, dict[str, Any]]:
    """The recipe that a `training` mapping names, if any, and the mapping with its values."""
    if "recipe" not in training:
        return None, dict(training)
    recipe = load_recipe(str(training["recipe"]), f"{where}.recipe")
    own = {key: value for key, value in training.items() if key != "recipe"}
    return recipe, {**_values(recipe.training), **own}


def _values(facts: Mapping[str, Fact]) -> dict[str, Any]:
    return {key: fact.value for key, fact in facts.items()}
