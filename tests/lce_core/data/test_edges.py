"""Draws and rows at their edges: documents of just the size, budgets that end in a document."""

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from lce_core.data import packing
from lce_core.data.packing import PackedRows
from lce_core.data.sampling import Draw, draw_documents
from lce_core.models.toy_llama import ToyLlama
from lce_core.recipe import Upsampling
from tests.lce_core.data.test_packing import KEEP_ALL, Given, pack


def draw(
    domains: list[int], lengths: list[int], budget: int, upsampling: Upsampling = KEEP_ALL
) -> Draw:
    return draw_documents(
        np.array(domains),
        np.array(lengths),
        ("a", "b"),
        budget=budget,
        upsampling=upsampling,
        seed=0,
    )


def test_a_document_of_just_the_length_is_long():
    rare = Upsampling(long_document_tokens=10, short_keep_rate=1e-9)
    drawn = draw([0] * 20, [10] * 20, 200, rare)
    assert sorted(drawn.documents) == list(range(20))
    assert drawn.passes.max() == 0
    shorter = draw([0] * 20, [9] * 20, 180, rare)
    assert shorter.passes.max() > 0


def test_domains_are_shuffled_independently():
    drawn = draw([0] * 40 + [1] * 40, [5] * 80, 400)
    first = drawn.documents[drawn.documents < 40]
    second = drawn.documents[drawn.documents >= 40] - 40
    assert sorted(first) == sorted(second) == list(range(40))
    assert first.tolist() != second.tolist()


def test_a_document_stands_where_its_middle_lies_in_its_domain():
    drawn = draw([0] + [1] * 10, [100] + [10] * 10, 200)
    assert drawn.documents.tolist().index(0) == 5


class Marked(ToyLlama):
    """The toy with a number drawn for each row in place of its first token."""

    def prepare_rows(
        self, rows: NDArray[np.uint32], rng: np.random.Generator
    ) -> tuple[NDArray[np.uint32], NDArray[np.uint8]]:
        rows = rows.copy()
        rows[:, 0] = rng.integers(256, size=len(rows))
        return rows, np.ones(rows.shape, dtype=np.uint8)


LETTERS = Given(texts=tuple(zip("ababab", (letter * 16 for letter in "uvwxyz"), strict=True)))


def test_the_second_document_of_each_domain_is_cut_where_its_share_ends(tmp_path):
    # Each domain's share of 48 tokens is 24: one document of 16 tokens and half of another.
    manifest = pack(LETTERS, tmp_path, num_rows=3)
    assert [domain["drawn_tokens"] for domain in manifest["domains"]] == [24, 24]
    assert manifest["drawn_documents"] == 4
    assert pq.read_table(tmp_path / "order.parquet")["start"].to_pylist() == [0, 16, 32, 40]


def test_each_block_of_rows_draws_its_own_last_touch(tmp_path, monkeypatch):
    monkeypatch.setattr(packing, "BLOCK_TOKENS", 16 * 8)
    pack(LETTERS, tmp_path, model=Marked(), num_rows=32)
    tokens, _ = PackedRows.open(tmp_path).read(np.arange(32))
    blocks = {tuple(tokens[start : start + 8, 0]) for start in range(0, 32, 8)}
    assert len(blocks) == 4
