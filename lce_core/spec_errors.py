"""Convert pydantic's validation errors into `SpecError`, for parsers of study files."""

import contextlib
import math
import re
from decimal import Decimal

from pydantic import BaseModel, ValidationError

from lce_core.errors import SpecError, did_you_mean

MAX_SHOWN = 200
"""Maximum characters of a value that an error quotes."""

_REMEDIES = {"packing": "correct the value; `document_masks` masks the documents that share a row"}
"""Remedies for keys in which users look for what another key sets."""


def spec_error(
    error: ValidationError, where: str, model: type[BaseModel], label: str = ""
) -> SpecError:
    """Convert a validation error into one `SpecError`.

    If a key is unknown, report that key, because it usually causes the other errors (a misspelt key
    is also missing). Otherwise report the first error and count the others. `where` is the path of
    the validated mapping in the study file.
    """
    found = error.errors(include_url=False)
    first = min(found, key=lambda one: one["type"] != "extra_forbidden")
    others = "" if len(found) == 1 else f" (and {len(found) - 1} more errors in this mapping)"
    place = where + "".join(
        f"[{part}]" if isinstance(part, int) else f"{_joint(where)}{part}" for part in first["loc"]
    )
    got = _shown(first["input"])
    known = [name for name in model.model_fields if name != "name"]
    if first["type"] == "extra_forbidden":
        if len(first["loc"]) > 1:
            takes, remedy = "a key that the documentation names here", "correct or remove the key"
        else:
            takes = f"one of the keys of {label or model.__name__}: {', '.join(known) or '(none)'}"
            remedy = did_you_mean(str(first["loc"][-1]), known) if known else "remove the key"
        return SpecError(place, "an unknown key", takes, remedy + others)
    if first["type"] == "value_error":
        raised = first["ctx"]["error"]  # by a model's validator; a `SpecError` keeps its texts
        if isinstance(raised, SpecError):
            return raised.within(f"{place}{_joint(place)}{raised.where}")
        return SpecError(place, got, f"values that fit together ({raised})", "change one of them")
    if first["type"] == "missing":
        return SpecError(place, "nothing", "a value for this key", "add the key" + others)
    remedy = _REMEDIES.get(place.rpartition(".")[2]) or _remedy(
        first["input"], is_text=first["type"] == "string_type"
    )
    return SpecError(place, got, _expectation(first["msg"]), remedy + others)


def _expectation(message: str) -> str:
    """Rephrase a pydantic message such as "Input should be greater than 0" as a noun phrase."""
    if found := re.match(r"(?:Input|Value) should be ((?:less|greater|a multiple).*)", message):
        return f"a value {found[1]}".replace("value a multiple", "value that is a multiple")
    if found := re.match(r"(?:Input|Value) should be (.*)", message):
        return found[1]
    if found := re.match(r"(\w+) should (have|match) (.*?)(?:, not \d+)?$", message):
        verb = {"have": "with", "match": "that matches"}[found[2]]
        return f"a {found[1].lower()} {verb} {found[3]}".replace(" after validation", "")
    return f"a valid value ({message})"


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}... ({len(text):,} characters)"


def _joint(where: str) -> str:
    return " " if where.endswith(":") else "."


def _remedy(given: object, is_text: bool) -> str:
    if is_text and isinstance(given, bool | int | float):
        return "put the value in quotes; without them YAML reads no, on or 3 as another type"
    if isinstance(given, str):
        with contextlib.suppress(ValueError, ArithmeticError):
            if math.isfinite(number := float(given)):
                is_whole = number.is_integer() and abs(number) < 2**63
                plain = int(Decimal(given)) if is_whole else number
                return f"write {plain} without quotes, which YAML reads as a number"
    return "correct the value"
