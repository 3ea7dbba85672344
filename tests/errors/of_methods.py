"""Provocations of methods and rotary tables."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from lce_core.contracts.tiny_models import BASES, TARGET, TRAINED
from lce_core.methods import METHODS
from lce_core.rope import ContextLengths, RopeGeometry, RopeTable
from lce_core.rope.bound import frequencies_of, smallest_base
from tests.support.errors.provocations import Place, Table

PROVOCATIONS = Table()
provokes = PROVOCATIONS
GEOMETRY = BASES[0].geometry
LENGTHS = ContextLengths(TRAINED, TARGET, TARGET)
TABLE = RopeTable(np.ones(4))


def parse(name: str, **parameters: Any) -> Any:
    return METHODS.parse({"name": name, **parameters}, "methods[0]")


def check(
    name: str,
    geometry: RopeGeometry = GEOMETRY,
    lengths: ContextLengths = LENGTHS,
    **parameters: Any,
) -> None:
    parse(name, **parameters).check(geometry, lengths)


def on(table: str, says: str, name: str, **given: Any) -> None:
    """Registers a check that fails."""
    provokes(f"lce_core/methods/{table}.py", says)(lambda _: check(name, **given))


on("__init__", "a scale of at least 1", "pi", scale=0.5)
on("_by_parts", "beta_fast larger", "yarn", beta_fast=1.0, beta_slow=2.0)
on("_by_parts", "turns that the fastest pair makes", "yarn", beta_fast=9.0, beta_slow=3.0)
on("_by_parts", "truncate: false", "yarn", ramp="paper", truncate=False)
on("abf_multi_stage", "one positive share", "abf_multi_stage", shares=[1.0])
on(
    "abf_multi_stage",
    "a target that divides",
    "abf_multi_stage",
    lengths=ContextLengths(TRAINED, 66, 66),
)
on("clex", "in the target", "clex", max_scale=1)
on("clex", "a step of which", "clex", step=0.3)
on("harpe/__init__", "stride", "harpe", bases=[1e4] * 4, stride=100)
on("harpe/__init__", "got {len(self.bases)} bases", "harpe", bases=[1e4])
on(
    "harpe/__init__",
    "for heads",
    "harpe",
    geometry=BASES[1].geometry,
    bases=[1e4, 2e4, 3e4, 3e4],
)
on(
    "harpe/search",
    "bases to choose",
    "harpe",
    geometry=replace(GEOMETRY, num_heads=4096, num_kv_heads=4096),
    bases="searched",
    stride=1_000_000,
)
on("landmark", "a divisor of {length}", "landmark", block=5)
on("landmark", "at least {least}", "landmark", block=8)
on(
    "landmark",
    "a divisor of the rows",
    "landmark",
    block=2,
    lengths=ContextLengths(TRAINED, 63, 63),
)
on("lm_infinite", "at most the", "lm_infinite", window=17)
on(
    "longlora",
    "at least 2 heads",
    "longlora",
    geometry=replace(GEOMETRY, num_heads=1, num_kv_heads=1),
)
on("longlora", "for training rows", "longlora", num_groups=5)
on("rerope", "at most", "rerope", window=16)
on("rope_base_method_2", "a split below", "rope_base_method_2", split=4)
on("self_extend", "a multiple of the group", "self_extend", window=9, group=4)
on("self_extend", "a window smaller", "self_extend", window=16, group=4)
on("streaming_llm", "a cache of at most", "streaming_llm", window=16)


@provokes("lce_core/methods/_ntk.py", "at least two pairs")
def _(_: Place) -> None:
    parse("ntk_aware").rope_table(replace(GEOMETRY, rotary_dim=2), LENGTHS)


@provokes("lce_core/rope/__init__.py", "an even rotary_dim")
def _(_: Place) -> None:
    replace(GEOMETRY, rotary_dim=7)


@provokes("lce_core/rope/__init__.py", "key-value heads that divide")
def _(_: Place) -> None:
    replace(GEOMETRY, num_kv_heads=3)


@provokes("lce_core/rope/__init__.py", "lengths of at least 1")
def _(_: Place) -> None:
    ContextLengths(0, 1, 1)


@provokes("lce_core/rope/__init__.py", "inv_freq in float64")
def _(_: Place) -> None:
    RopeTable(np.ones(4, np.float32))


@provokes("lce_core/rope/__init__.py", "zero, negative")
def _(_: Place) -> None:
    RopeTable(np.zeros(4))


@provokes("lce_core/rope/__init__.py", "attention factor")
def _(_: Place) -> None:
    RopeTable(np.ones(4), 0.0)


@provokes("lce_core/rope/bound.py", "a finite base above 1")
def _(_: Place) -> None:
    frequencies_of(1.0, 128)


@provokes("lce_core/rope/bound.py", "an even number from 2")
def _(_: Place) -> None:
    frequencies_of(1e4, 7)


@provokes("lce_core/rope/bound.py", "a length of at least 1 token")
def _(_: Place) -> None:
    smallest_base(0, 128)


@provokes("lce_core/rope/bound.py", "a length that some base of the grid reaches")
def _(_: Place) -> None:
    smallest_base(2, 2)  # one pair turns by a radian a token, whatever the base
