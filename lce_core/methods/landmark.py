"""Landmark attention: a token after each block represents the block and selects it when needed.

Design: a new token, the landmark, follows every `block - 1` tokens of text. In training on short
sequences, its key learns to attract the queries that need its block: attention is a softmax over
the query's own block and earlier landmarks, and the weight of a landmark is distributed over its
block. At inference each query and head reads the `top_k` blocks whose landmarks score highest, at
bounded distances.

Source: Mohtashami and Jaggi 2023, arXiv:2305.16300; LCEG (arXiv:2409.12181), section 3.3.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from lce_core.attention.schemes import BlockRetrieval, GroupedSoftmax
from lce_core.errors import SpecError
from lce_core.evidence import EXACT, frequencies, value
from lce_core.methods import Family, Method, TokenInsertion
from lce_core.registry import Examples, Source
from lce_core.rope import ContextLengths, RopeGeometry


class Landmark(Method):
    """Grouped softmax in training, retrieval of blocks at inference."""

    family: ClassVar[Family] = "approximate"
    exact_attention: ClassVar[bool] = False
    training: ClassVar[Literal["none", "optional", "required"]] = "required"

    block: int | None = Field(default=None, ge=2)
    """Tokens of a block, landmark included; None means 64, at most 1/8 of train_length."""
    top_k: int = Field(default=5, ge=1)
    """Blocks that each query and head reads besides its own chunk."""
    train_length: int | None = Field(default=None, ge=1)
    """Tokens of text in a training sequence without landmarks; rows are cut into these. None means
    512, at most the trained context."""

    def insertion(self, geometry: RopeGeometry) -> TokenInsertion:
        """Return the sizes of blocks and training sequences.

        Defaults follow the trained context.
        """
        length = self.train_length
        if length is None:
            length = min(512, geometry.trained_context)
        block = max(2, min(64, length // 8)) if self.block is None else self.block
        return TokenInsertion(block=block, train_length=length)

    def attention(self, geometry: RopeGeometry, lengths: ContextLengths) -> BlockRetrieval:
        """Return the attention at inference, which reads blocks selected by landmarks.

        Of the train_length positions, top_k + 1 blocks are slots and the rest is the chunk.
        """
        sizes = self.insertion(geometry)
        chunk = sizes.train_length - (self.top_k + 1) * sizes.block
        return BlockRetrieval(block=sizes.block, top_k=self.top_k, chunk=chunk)

    def training_attention(self, geometry: RopeGeometry, lengths: ContextLengths) -> GroupedSoftmax:
        """Return the attention in training, over a whole training sequence."""
        return GroupedSoftmax(block=self.insertion(geometry).block)

    def check(self, geometry: RopeGeometry, lengths: ContextLengths) -> None:
        """Raise SpecError if block, training sequence and target context do not divide or fit."""
        sizes = self.insertion(geometry)
        block, length = sizes.block, sizes.train_length
        if length % block:
            raise SpecError(
                "landmark.block",
                block,
                f"a divisor of {length}, the positions of a training sequence, which"
                " slots and chunk share in use",
                "change block or train_length",
            )
        least = (self.top_k + 2) * block
        if length < least:
            raise SpecError(
                "landmark.train_length",
                length,
                f"at least {least}: top_k + 1 = {self.top_k + 1} slots and a chunk of"
                f" one block of {block} tokens",
                "lower top_k or block, or raise train_length",
            )
        if lengths.target % length:
            raise SpecError(
                "landmark.train_length",
                length,
                f"a divisor of the rows of {lengths.target} tokens",
                f"give a divisor of {lengths.target} that is a multiple of {block}",
            )


METHOD = Landmark
SOURCE = Source(
    paper="arXiv:2305.16300",
    place="sections 3.1 and 3.2; blocks of 64, 5 of them read, and sequences of 512 from LCEG's"
    " code",
    reference="https://github.com/epfml/landmark-attention/tree/d963e50",
    differs="chunks lie at multiples of their size, where the reference lets them follow the calls,"
    " so that cached and uncached passes agree; a landmark is inserted as soon as its block is"
    " full, not when the next token comes; landmarks that tie go to the earlier block; chunk and"
    " slots share train_length. LCEG's equations 13 and 14 take two separate softmaxes, which its"
    " code does not. LCEG's perplexities are of independent pieces of 512 tokens, hence the same at"
    " every length; here a window is one text",
)
EVIDENCE = (
    value(
        "distance",
        (0, 127, None, 0, 72, None),
        "chunks of 512 - (5 + 1) * 64 = 128 tokens, the reference's max_chunk for LCEG's settings,"
        " by hand",
        positions=((0, 0), (127, 0), (128, 127), (128, 128), (328, 256), (328, 255)),
    ),
    frequencies((1.0, 8.659643e-1, 1.154782e-4), origin=EXACT, pairs=(0, 1, 63)),
    value("reach", None, "the method limits no length"),
)
EXAMPLES: Examples = ({}, {"block": 4, "top_k": 13, "train_length": 64}, {"block": 4, "top_k": 2})
VERSION = 2
