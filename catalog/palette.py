"""Colours and mark shapes of methods: the same in reports, the dashboard and MLflow.

The hue depends on the method's place in its family. Within a family the hues are at least 60
degrees apart for the first six methods. Families are shifted by 12 degrees, so that methods of
different families differ too. Lightness alternates, because hues alone are hard to tell apart with
colour-deficient vision.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

PLACES: Final[Mapping[str, tuple[str, ...]]] = {
    "interpolation": (
        "pi", "yarn", "ntk_by_parts", "rope_base_method_2", "llama3", "resonance", "drope",
        "p_rope", "hard_clip", "cope", "nope_hybrid", "longrope", "mr_rope", "learned_rope",
    ),
    "base": (
        "ntk_aware", "abf_single_stage", "abf_multi_stage", "harpe", "small_base",
        "rope_base_method_1",
    ),
    "dynamic": (
        "ntk_frozen", "dynamic_ntk_aware", "dynamic_pi", "dynamic_yarn", "ntk_32k", "ntk_64k",
        "clex",
    ),
    "approximate": (
        "lm_infinite", "streaming_llm", "self_extend", "rerope", "longlora", "landmark", "dca",
        "string", "dpe", "jet_long", "lampe",
    ),
}  # fmt: skip
"""Methods by family. A listed one looks the same everywhere; others take the next free place."""
NUM_SHAPES: Final = 6
_FIRST_HUE, _FAMILY_DEGREES = 250, 12
_HUES: Final = (0, 180, 60, 240, 120, 300)
"""Degrees from a family's first hue, in the order in which its methods receive them."""
_BETWEEN: Final = (0, 30, 15, 45)
"""Degrees added for the first, second, third and fourth six methods of a family."""
_LIGHT: Final = (0.52, 0.62)
"""OKLCH lightness on light pages: at least 3:1 contrast with white."""
_DARK: Final = (0.72, 0.82)
_CHROMA: Final = 0.15


@dataclass(frozen=True)
class Look:
    """Colours and mark shape with which charts draw a method."""

    light: str
    dark: str
    shape: int


CONTROL_LOOK: Final = Look("#8b949e", "#8793a0", 0)


def family_of(method: str) -> str | None:
    return next((key for key, names in PLACES.items() if method in names), None)


def looks(families: Mapping[str, str | None]) -> dict[str, Look]:
    """Return the look of each method; "none" is the base model, None counts as one more family."""
    found: dict[str, Look] = {}
    added: dict[str, int] = {}
    for method, given in families.items():
        if given == "none":
            found[method] = CONTROL_LOOK
            continue
        key = family_of(method) or (given if given and given in PLACES else "other")
        listed = PLACES.get(key, ())
        if method in listed:
            place = listed.index(method)
        else:
            place = len(listed) + added.get(key, 0)
            added[key] = added.get(key, 0) + 1
        found[method] = _look([*PLACES, "other"].index(key), place)
    return found


def _look(family: int, place: int) -> Look:
    sixth, within = divmod(place, len(_HUES))
    shift = _BETWEEN[sixth % len(_BETWEEN)]
    hue = _FIRST_HUE + _FAMILY_DEGREES * family + _HUES[within] + shift
    tone = (place + family) % 2
    # Shapes are shifted by family: methods of similar hue in two families have other shapes.
    shape = (place + family) % NUM_SHAPES
    return Look(_hex(_LIGHT[tone], hue), _hex(_DARK[tone], hue), shape)


def _hex(lightness: float, hue: float) -> str:
    """Convert an OKLCH colour to #rrggbb, with less chroma if sRGB lacks the colour."""
    chroma = _CHROMA
    while min(rgb := _srgb(lightness, chroma, hue)) < 0 or max(rgb) > 1:
        chroma -= 0.005
    return "#" + "".join(f"{round(255 * part):02x}" for part in rgb)


def _srgb(lightness: float, chroma: float, hue: float) -> tuple[float, float, float]:
    # Matrices of OKLab: https://bottosson.github.io/posts/oklab/
    a, b = chroma * math.cos(math.radians(hue)), chroma * math.sin(math.radians(hue))
    long = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3
    middle = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3
    short = (lightness - 0.0894841775 * a - 1.2914855480 * b) ** 3
    return (
        _gamma(4.0767416621 * long - 3.3077115913 * middle + 0.2309699292 * short),
        _gamma(-1.2684380046 * long + 2.6097574011 * middle - 0.3413193965 * short),
        _gamma(-0.0041960863 * long - 0.7034186147 * middle + 1.7076147010 * short),
    )


def _gamma(linear: float) -> float:
    return 12.92 * linear if linear <= 0.0031308 else 1.055 * linear ** (1 / 2.4) - 0.055
