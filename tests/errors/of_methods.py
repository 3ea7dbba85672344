from lce_core.errors import SpecError
from lce_core.rope.bound import frequencies_of, smallest_base
from tests.support.errors.provocations import provokes

provokes(SpecError, "RoPE base: got 1.0")(lambda _: frequencies_of(1.0, 128))
provokes(SpecError, "rotated elements: got 7")(lambda _: frequencies_of(1e4, 7))
provokes(SpecError, "length: got 0")(lambda _: smallest_base(0, 128))
provokes(SpecError, "length 2 with 2")(lambda _: smallest_base(2, 2))
