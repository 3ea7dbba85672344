"""Cut a text into chunks at fixed positions, and compute neighbouring whole chunks together."""

from collections.abc import Iterator
from typing import NamedTuple

from torch import Tensor


class Run(NamedTuple):
    """Tokens first..stop - 1 of the text: part of one chunk, or all of `num_chunks` chunks."""

    start: int
    """Start of the chunk that contains the first token."""
    first: int
    stop: int
    num_chunks: int

    @property
    def places(self) -> slice:
        """Positions within a chunk, the same for every chunk of the run."""
        first = self.first - self.start
        return slice(first, first + (self.stop - self.first) // self.num_chunks)


def runs(first: int, stop: int, size: int, most: int) -> Iterator[Run]:
    """Split tokens first..stop - 1 into runs, in order; chunks start at multiples of `size`.

    A run has whole chunks with at most `most` tokens in total, or one (whole or partial) chunk.
    """
    while first < stop:
        start = first // size * size
        num_chunks = max(1, min(most, stop - first) // size) if first == start else 1
        end = min(start + num_chunks * size, stop)
        yield Run(start, first, end, num_chunks)
        first = end


def most_together(states: Tensor) -> int:
    """Return the most tokens of `states` (..., tokens, head_dim) that a run should have."""
    # On a CPU, one chunk's tensors fit into its cache; a GPU needs time to start operations.
    return 0 if states.device.type == "cpu" else states.shape[-2]


def as_texts(states: Tensor, number: int) -> Tensor:
    """Turn `number` chunks of states (batch, heads, tokens, ...) into as many texts."""
    texts: Tensor = states.unflatten(2, (number, -1)).transpose(1, 2).flatten(0, 1)
    return texts


def as_chunks(states: Tensor, number: int) -> Tensor:
    chunks: Tensor = states.unflatten(0, (-1, number)).transpose(1, 2).flatten(2, 3)
    return chunks
