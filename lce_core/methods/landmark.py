"""Landmark attention: an inserted token after each block lets queries select whole blocks.

Design: a new token, the landmark, follows every `block - 1` tokens of text. Training uses short
sequences. There, attention is a softmax over the query's own block and earlier landmarks, and the
weight of a landmark is distributed over its block; the landmark's key thus learns to attract
queries to its block. At inference each query and head reads the `top_k` blocks whose landmarks
score highest, at bounded distances.
"""

from pydantic import Field

from lce_core.attention.schemes import BlockRetrieval, GroupedSoftmax
from lce_core.errors import SpecError
from lce_core.evidence import EXACT, frequencies, value
from lce_core.methods import Method, TokenInsertion
from lce_core.registry import Examples, Source
from lce_core.rope import ContextLengths, RopeGeometry


class Landmark(Method):
    """Inserts landmark tokens; they select the earlier blocks that a query reads at inference."""

    family = "approximate"
    exact_attention = False
    training = "required"

    block: int | None = Field(default=None, ge=2)
    """Number of tokens in a block, its landmark included; None means the smaller of 64 and
    train_length / 8."""
    top_k: int = Field(default=5, ge=1)
    """Number of earlier blocks that each query and head reads, besides the query's own chunk. A
    chunk has the positions of train_length that top_k + 1 blocks leave free."""
    train_length: int | None = Field(default=None, ge=1)
    """Number of text tokens, without landmarks, in each sequence into which training rows are cut;
    None means the smaller of 512 and the trained context."""

    def insertion(self, geometry: RopeGeometry) -> TokenInsertion:
        length = self.train_length
        if length is None:
            length = min(512, geometry.trained_context)
        block = max(2, min(64, length // 8)) if self.block is None else self.block
        return TokenInsertion(block=block, train_length=length)

    def attention(self, geometry: RopeGeometry, lengths: ContextLengths) -> BlockRetrieval:
        sizes = self.insertion(geometry)
        chunk = sizes.train_length - (self.top_k + 1) * sizes.block
        return BlockRetrieval(block=sizes.block, top_k=self.top_k, chunk=chunk)

    def training_attention(self, geometry: RopeGeometry, lengths: ContextLengths) -> GroupedSoftmax:
        return GroupedSoftmax(block=self.insertion(geometry).block)

    def check(self, geometry: RopeGeometry, lengths: ContextLengths) -> None:
        sizes = self.insertion(geometry)
        block, length = sizes.block, sizes.train_length
        if length % block:
            raise SpecError(
                "landmark.block",
                block,
                f"a divisor of train_length, which is {length}",
                "change block or train_length",
            )
        least = (self.top_k + 2) * block
        if length < least:
            raise SpecError(
                "landmark.train_length",
                length,
                f"at least {least}: top_k + 2 = {self.top_k + 2} blocks of {block} tokens",
                "lower top_k or block, or raise train_length",
            )
        if lengths.target % length:
            raise SpecError(
                "landmark.train_length",
                length,
                f"a divisor of the target context, {lengths.target} tokens",
                f"give a divisor of {lengths.target} that is a multiple of {block}",
            )


METHOD = Landmark
SOURCE = Source(
    paper="arXiv:2305.16300",
    place="sections 3.1 and 3.2; blocks of 64, 5 of them read, and sequences of 512 from LCEG's"
    " code",
    reference="https://github.com/epfml/landmark-attention/tree/d963e50",
    differs="chunks start at multiples of their size, so that cached and uncached passes agree; in"
    " the reference they depend on how a text is split into calls. A landmark is inserted as soon"
    " as its block is full; the reference waits for the next token. Of landmarks with equal scores"
    " the earlier block wins. Positions of chunk and selected blocks add up to train_length. LCEG's"
    " equations 13 and 14 have two separate softmaxes; its code has one. LCEG computes perplexity"
    " on independent pieces of 512 tokens, so it is the same at every length; lce computes it on"
    " one text per window",
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
