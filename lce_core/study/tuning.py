"""The section `tune` of a study file: give each tuned method its own best training setting.

Every tuned variant gets the same grid of values for one field of `training`. A trial trains the
variant with one value; its score is the mean NLL on validation text that the study never reports.
The variant then appears twice in the study: with the common value, and with its own best value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field, model_validator

from lce_core.errors import SpecError
from lce_core.recipe import Section, Training

BEST = "_best"
"""Label suffix of a variant that trains with its own best value."""
_MAX_VALUES = 100


class Tune(Section):
    """Search for the best value of one field of `training`, separately for each tuned variant.

    A study file gives the grid for exactly one field.
    """

    learning_rate: tuple[float, ...] = Field(default=(), max_length=_MAX_VALUES)
    """Values of `learning_rate` to try."""
    warmup_steps: tuple[int, ...] = Field(default=(), max_length=_MAX_VALUES)
    """Values of `warmup_steps` to try."""
    weight_decay: tuple[float, ...] = Field(default=(), max_length=_MAX_VALUES)
    """Values of `weight_decay` to try."""
    adam_beta1: tuple[float, ...] = Field(default=(), max_length=_MAX_VALUES)
    """Values of `adam_beta1` to try."""
    adam_beta2: tuple[float, ...] = Field(default=(), max_length=_MAX_VALUES)
    """Values of `adam_beta2` to try."""
    gradient_clip: tuple[float, ...] = Field(default=(), max_length=_MAX_VALUES)
    """Values of `gradient_clip` to try."""
    ema_decay: tuple[float, ...] = Field(default=(), max_length=_MAX_VALUES)
    """Values of `ema_decay` to try."""
    seed: int = Field(default=1000, ge=0, lt=1 << 63)
    """Seed of the trials. The study must not have it among its `seeds`, so that no trial is a
    reported run."""
    train_tokens: int | None = Field(default=None, gt=0)
    """Training tokens of a trial; with `match: flops` the tokens whose FLOPs a trial gets. Defaults
    to those of the variant's reported runs."""
    validation_tokens: int | None = Field(default=None, gt=0)
    """Tokens of validation text per domain. Defaults to `evaluation.held_out_tokens`."""
    domains: tuple[str, ...] = ()
    """Domains of the corpus whose validation text is scored, equally weighted. Defaults to all."""

    @model_validator(mode="before")
    @classmethod
    def _tunable(cls, given: Any) -> Any:
        if not isinstance(given, Mapping):
            return given
        for key in given:
            if key in Training.model_fields and key not in cls.model_fields:
                raise SpecError(
                    key,
                    "a field that cannot be tuned: it also changes rows, steps or arithmetic",
                    f"one of {', '.join(_GRIDS)}",
                    "write one study per value of this field",
                )
        # After a `before` validator, pydantic's strict mode refuses a JSON list for a tuple.
        return {k: tuple(v) if isinstance(v, list) else v for k, v in given.items()}

    @model_validator(mode="after")
    def _one_grid(self) -> Tune:
        given = [field for field in _GRIDS if field in self.model_fields_set]
        if len(given) != 1:
            raise SpecError(
                "tune",
                " and ".join(given) or "no field of `training`",
                f"values for exactly one of {', '.join(_GRIDS)}",
                "write, for example, `learning_rate: [3.0e-4, 1.0e-3, 3.0e-3]`",
            )
        if len(self.values) < 2 or len(set(self.values)) < len(self.values):
            raise SpecError(
                given[0],
                list(self.values),
                "at least two values, each of them once",
                "add values, or remove `tune`",
            )
        return self

    @property
    def field(self) -> str:
        return next(field for field in _GRIDS if getattr(self, field))

    @property
    def values(self) -> tuple[float, ...]:
        return next((grid for field in _GRIDS if (grid := getattr(self, field))), ())


_GRIDS = tuple(field for field in Tune.model_fields if field in Training.model_fields)


def changed(training: Training, field: str, value: float) -> Training:
    """Replace a field; `value` may be a whole number as a float, as `ChoiceSpec` has it."""
    as_field = type(getattr(training, field))
    return Training.model_validate({**training.model_dump(), field: as_field(value)})
