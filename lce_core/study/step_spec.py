"""The base class of step kinds. A kind defines how its steps are grouped, ordered and priced."""

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
"""Classes by the kind's name; importing `lce_core.study.step_kinds` adds them."""


class StepSpec(Section):
    """Base class of step kinds. The fields of a subclass are the settings of a step.

    The fingerprint contains all required fields, and optional ones that differ from their defaults.
    """

    kind: ClassVar[str]
    version: ClassVar[int]
    order: ClassVar[int]
    """Steps of lower kinds start first, because later kinds read their results."""
    submitted_as: ClassVar[str]
    """Name of the Prefect task that computes steps of this kind."""
    place: ClassVar[tuple[str, ...]] = ()
    """Axes (method, seed, length, ...) that identify a step within a study. If a step with equal
    axes has another id, its settings changed."""

    @classmethod
    def __pydantic_init_subclass__(cls, **options: Any) -> None:
        super().__pydantic_init_subclass__(**options)
        if "kind" in vars(cls):
            KINDS[cls.kind] = cls

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> Self:
        """Rebuild a spec from the output of `identity`."""
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            for one in error.errors():  # a plug-in's own error is clearer than pydantic's
                if isinstance(refusal := one.get("ctx", {}).get("error"), SpecError):
                    raise refusal from None
            raise spec_error(error, cls.kind, cls) from None

    def cost(self, step: Step) -> StepCost:  # noqa: ARG002 - of a kind that runs a model
        """Predict the cost of a step. It is zero for steps that run no model."""
        return StepCost()

    @classmethod
    def unit(cls, step: Step) -> tuple[object, ...]:
        """Return a grouping key. Steps with equal keys form a unit, which one worker computes."""
        return (step.fingerprint,)

    @classmethod
    def unit_name(cls, step: Step) -> str:
        """Return the display name of the step's unit."""
        return f"{step.kind} {step.name}"

    @classmethod
    def is_divisible(cls, step: Step) -> bool:  # noqa: ARG003 - of a kind with more steps in a unit
        """Return True if two workers that share the step's unit finish it sooner than one."""
        return True

    @classmethod
    def rank(cls, step: Step) -> tuple[str, int]:  # noqa: ARG003 - of a kind with more in a unit
        """Return the sort key within a unit; equal keys keep the plan's order."""
        return "", 0
