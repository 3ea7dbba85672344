"""The search for a method's parameters as plain data, for methods that leave parameters open.

The search runs on the weights that the method starts from and on validation text that no cell
reports. `lce_core.evaluation.parameter_search` measures the losses.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field

from lce_core.recipe import Section
from lce_core.rope import ContextLengths, RopeGeometry

Parameters = Mapping[str, Any]
"""Values of a method's parameters, as JSON; None stands for the parameter's default."""
Loss = Callable[[Parameters], float]
"""Function that measures the loss in nats of a model whose method has these parameters."""


@dataclass(frozen=True)
class SearchResult:
    """The result of a search."""

    parameters: Parameters
    loss: float
    """Lowest loss, in nats per scored token."""
    start_loss: float
    """Lowest loss among the parameters with which the search started."""
    num_trials: int
    """Number of parameter values whose loss was measured."""
    best: tuple[float, ...]
    """Lowest loss after each round of the search, the first parameters included."""


class ParameterSearch(Section):
    """Base class of a method's search settings, which are part of the method's parameters.

    The search depends only on its settings and the losses, so replaying stored losses resumes it.
    """

    guide: Literal["perplexity", "needles"] = "perplexity"
    """Loss that the search minimises at the target context: of all tokens of validation text
    (perplexity), or only of the answers to questions about a needle at the start of such a text
    (needles)."""
    samples: int = Field(default=5, ge=1)
    """Number of texts, each as long as the target context, on which the loss is measured."""
    seed: int = Field(default=0, ge=0)
    """Seed of the search and of the needles."""

    @property
    @abstractmethod
    def max_trials(self) -> int:
        """Largest number of parameter values whose loss the search measures."""

    @abstractmethod
    def run(self, geometry: RopeGeometry, lengths: ContextLengths, loss: Loss) -> SearchResult:
        """Search for the parameters with the lowest loss."""
