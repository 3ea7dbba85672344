"""The base class of step kinds: fields, version, order, unit, place and cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from pydantic import ValidationError

from lce_core.errors import SpecError
from lce_core.recipe import Section
from lce_core.spec_errors import spec_error
from lce_core.store.steps import Step
from lce_core.study.step_cost import StepCost

KINDS: dict[str, type[StepSpec]] = {}
"""Classes by kind. Class definitions fill it, so import `step_kinds` before reading it."""


class StepSpec(Section):
    """Base class of step specs, with one subclass per step kind.

    Required fields are always part of the identity; optional fields only if they are set.
    """

    kind: ClassVar[str]
    version: ClassVar[int]
    order: ClassVar[int]
    """Scheduling order of kinds. Lower values start first because other steps wait for them."""
    submitted_as: ClassVar[str]
    """Name of the Prefect task that computes units of this kind."""
    place: ClassVar[tuple[str, ...]] = ()
    """Axes that identify a step within a study. Another id in the same place is a changed step."""

    @classmethod
    def __pydantic_init_subclass__(cls, **options: Any) -> None:
        super().__pydantic_init_subclass__(**options)
        if "kind" in vars(cls):
            KINDS[cls.kind] = cls

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> Self:
        """Parse the mapping that `identity` returned.

        Raises:
          SpecError: if another version of this kind or of a plug-in wrote the values.
        """
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            for one in error.errors():  # a plug-in's own error is clearer than pydantic's
                if isinstance(refusal := one.get("ctx", {}).get("error"), SpecError):
                    raise refusal from None
            raise spec_error(error, cls.kind, cls) from None

    def cost(self, step: Step) -> StepCost:  # noqa: ARG002 - of a kind that runs a model
        """Predict the cost of a step. Steps that run no model cost nothing."""
        return StepCost()

    @classmethod
    def unit(cls, step: Step) -> tuple[object, ...]:
        """Return the grouping key: steps of one kind with equal keys form one unit of work."""
        return (step.fingerprint,)

    @classmethod
    def unit_name(cls, step: Step) -> str:
        """Return the display name of the step's unit."""
        return f"{step.kind} {step.name}"

    @classmethod
    def is_divisible(cls, step: Step) -> bool:  # noqa: ARG003 - of a kind with more steps in a unit
        """Return True if a unit with this step finishes sooner when two workers share its steps."""
        return True

    @classmethod
    def rank(cls, step: Step) -> tuple[str, int]:  # noqa: ARG003 - of a kind with more in a unit
        """Return the sort key within a unit; steps with equal keys keep the plan's order."""
        return "", 0
