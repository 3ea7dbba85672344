"""Nothing here records gradients unless a test asks for it."""

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def _inference() -> Iterator[None]:
    with torch.no_grad():
        yield
