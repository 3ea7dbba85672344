"""Load published training recipes, which a study file names as `training: {recipe: yarn}`.

A file in `lce_core/recipes` states a paper's training settings, the source of every value and any
statement that contradicts it. Keys in the study override those of the recipe. Fingerprints contain
the values and not the recipe's name.
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
    """Contradicting value elsewhere in the same paper or code, with its source."""


class Recipe(Section):
    """The content of one file in `lce_core/recipes`."""

    about: str
    """The paper or project that published these settings."""
    training: dict[str, Fact]
    """Values and sources, by key of `Training`."""
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
        """Return the keys, other than `training`, that the recipe sets in an entry of `methods`."""
        return {} if self.train_tokens is None else {"train_tokens": self.train_tokens.value}

    def of_study(self) -> dict[str, Any]:
        """Return the keys, other than `training`, that the recipe sets for a whole study."""
        upsampling = {"upsampling": _values(self.upsampling)} if self.upsampling else {}
        return {**self.of_entry(), **upsampling}


def recipe_names() -> list[str]:
    folder = files("lce_core") / "recipes"
    names = (file.name for file in folder.iterdir())
    return sorted(name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX))


def load_recipe(name: str, where: str = "recipe") -> Recipe:
    known = recipe_names()
    if name not in known:
        raise SpecError(where, repr(name), "the name of a recipe", did_you_mean(name, known))
    text = (files("lce_core") / "recipes" / f"{name}{_SUFFIX}").read_text(encoding="utf-8")
    return Recipe.model_validate(yaml.safe_load(text))


def resolved(training: Mapping[str, Any], where: str) -> tuple[Recipe | None, dict[str, Any]]:
    """Replace the key `recipe` of `training` by the recipe's values; other keys override them.

    Also return the recipe (None without the key).
    """
    if "recipe" not in training:
        return None, dict(training)
    recipe = load_recipe(str(training["recipe"]), f"{where}.recipe")
    own = {key: value for key, value in training.items() if key != "recipe"}
    return recipe, {**_values(recipe.training), **own}


def _values(facts: Mapping[str, Fact]) -> dict[str, Any]:
    return {key: fact.value for key, fact in facts.items()}
