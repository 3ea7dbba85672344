"""What every kind of step says of itself: its fields, version, order, unit, place and cost."""

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
"""Every class with a kind; filled as classes are defined, so ask `step_kinds` for what is in it."""


class StepSpec(Section):
    """Base of the specs, one subclass for each kind of step.

    Required fields are identity always, optional ones where they are given.
    """

    kind: ClassVar[str]
    version: ClassVar[int]
    order: ClassVar[int]
    """Lower ones start first: what others wait for, before what nobody waits for."""
    submitted_as: ClassVar[str]
    """Name of the Prefect task that computes its units."""
    place: ClassVar[tuple[str, ...]] = ()
    """Axes that tell a study's steps of this kind apart: what stands there again was changed."""

    @classmethod
    def __pydantic_init_subclass__(cls, **options: Any) -> None:
        super().__pydantic_init_subclass__(**options)
        if "kind" in vars(cls):
            KINDS[cls.kind] = cls

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> Self:
        """Inverse of `identity`.

        Raises:
          SpecError: the values were written by another version of this kind or of a plug-in.
        """
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            for one in error.errors():  # what a plug-in refuses says more than pydantic
                if isinstance(refusal := one.get("ctx", {}).get("error"), SpecError):
                    raise refusal from None
            raise spec_error(error, cls.kind, cls) from None

    def cost(self, step: Step) -> StepCost:  # noqa: ARG002 - of a kind that runs a model
        """Predicted cost; steps that run no model cost nothing."""
        return StepCost()

    @classmethod
    def unit(cls, step: Step) -> tuple[object, ...]:
        """Steps of a kind for which this is equal are one unit of work."""
        return (step.fingerprint,)

    @classmethod
    def unit_name(cls, step: Step) -> str:
        """Name of the step's unit, for people."""
        return f"{step.kind} {step.name}"

    @classmethod
    def is_divisible(cls, step: Step) -> bool:  # noqa: ARG003 - of a kind with more steps in a unit
        """Whether two workers are through with a unit sooner than one of them."""
        return True

    @classmethod
    def rank(cls, step: Step) -> tuple[str, int]:  # noqa: ARG003 - of a kind with more in a unit
        """Steps of a unit are computed in ascending order of this, else in the plan's."""
        return "", 0
