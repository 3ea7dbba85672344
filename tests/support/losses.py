"""Losses alone, for tests that ask for nothing else of the scores."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from lce_core.evaluation.cross_entropy import token_scores
from lce_core.evaluation.likelihood import window_scores


def window_nll(*arguments: Any, **options: Any) -> NDArray[np.float32]:
    return window_scores(*arguments, **options).nll


def token_nll(*arguments: Any, **options: Any) -> Tensor:
    return token_scores(*arguments, **options)[0]
