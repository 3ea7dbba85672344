"""Provocations of methods and rotary tables."""

import numpy as np

from lce_core.errors import SpecError
from lce_core.methods import METHODS, check_sinks
from lce_core.models import MODELS
from lce_core.rope import ContextLengths, RopeTable
from lce_core.rope.bound import frequencies_of, smallest_base
from tests.support.errors.provocations import provokes

LLAMA = MODELS.parse({"name": "llama2_7b"}, "test").geometry

provokes(SpecError, "trained 0")(lambda _: ContextLengths(0, 1, 1))
provokes(SpecError, "attention factor of 0.0")(lambda _: RopeTable(np.ones(4), 0.0))
provokes(SpecError, "RoPE base: got 1.0")(lambda _: frequencies_of(1.0, 128))
provokes(SpecError, "rotated elements: got 7")(lambda _: frequencies_of(1e4, 7))
provokes(SpecError, "length: got 0")(lambda _: smallest_base(0, 128))
provokes(SpecError, "length 2 with 2")(lambda _: smallest_base(2, 2))
provokes(SpecError, "landmark.attention: got the attention scheme BlockRetrieval")(
    lambda _: check_sinks(METHODS.load("landmark")(), LLAMA, ContextLengths(4096, 32768, 32768), 32)
)
