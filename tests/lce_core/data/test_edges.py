"""Draws and rows at their edges: documents of just the size, of equal sizes, of exactly the budget.

Small corpora in which each answer can be read off.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

from lce_core.corpora import Corpus, Document, Split
from lce_core.data import packing
from lce_core.data.packing import PackedRows, pack_rows
from lce_core.data.sampling import Draw, draw_documents
from lce_core.models.toy_llama import ToyLlama
from lce_core.recipe import Upsampling

ALL = Upsampling(long_document_tokens=1, short_keep_rate=1.0)


def draw(domains: list[int], lengths: list[int], budget: int, upsampling: Upsampling = ALL) -> Draw:
    return draw_documents(
        np.array(domains),
        np.array(lengths),
        ("a", "b"),
        budget=budget,
        upsampling=upsampling,
        seed=0,
    )


def test_a_document_of_just_the_length_is_long() -> None:
    rare = Upsampling(long_document_tokens=10, short_keep_rate=1e-9)
    drawn = draw([0] * 20, [10] * 20, 200, rare)
    assert sorted(drawn.documents) == list(range(20))
    assert drawn.passes.max() == 0
    shorter = draw([0] * 20, [9] * 20, 180, rare)
    assert shorter.passes.max() > 0


def test_domains_are_shuffled_independently() -> None:
    drawn = draw([0] * 40 + [1] * 40, [5] * 80, 400)
    first = drawn.documents[drawn.documents < 40]
    second = drawn.documents[drawn.documents >= 40] - 40
    assert sorted(first) == sorted(second) == list(range(40))
    assert first.tolist() != second.tolist()


def test_a_document_stands_where_its_middle_lies_in_its_domain() -> None:
    drawn = draw([0] + [1] * 10, [100] + [10] * 10, 200)
    assert drawn.documents.tolist().index(0) == 5


class Given(Corpus):
    """Documents of 16 bytes in two domains."""

    plugin_name: ClassVar[str] = "given"
    texts: tuple[str, ...]

    def domains(self) -> tuple[str, ...]:
        return ("a", "b")

    def documents(self, split: Split, folders: Mapping[str, Path]) -> Iterator[Document]:
        for number, text in enumerate(self.texts):
            yield Document(f"{split}-{number}", "ab"[number % 2], text)


class Marked(ToyLlama):
    """The toy with a number drawn for each row in place of its first token."""

    def prepare_rows(
        self, rows: NDArray[np.uint32], rng: np.random.Generator
    ) -> tuple[NDArray[np.uint32], NDArray[np.uint8]]:
        rows = rows.copy()
        rows[:, 0] = rng.integers(256, size=len(rows))
        return rows, np.ones(rows.shape, dtype=np.uint8)


def pack(out: Path, num_rows: int) -> Any:
    corpus = Given(texts=tuple(f"{letter}" * 16 for letter in "uvwxyz"))
    return pack_rows(
        corpus,
        Marked(),
        ToyLlama().tokenizer(None),
        row_length=16,
        num_rows=num_rows,
        upsampling=ALL,
        seed=0,
        folders={},
        out=out,
        report=lambda event: None,
    )


def test_the_second_document_of_each_domain_is_cut_where_its_share_ends(tmp_path: Path) -> None:
    # Each domain's share of 48 tokens is 24: one document of 16 tokens and half of another.
    manifest = pack(tmp_path, 3)
    assert [domain["drawn_tokens"] for domain in manifest["domains"]] == [24, 24]
    assert manifest["drawn_documents"] == 4
    assert pq.read_table(tmp_path / "order.parquet")["start"].to_pylist() == [0, 16, 32, 40]


def test_each_block_of_rows_draws_its_own_last_touch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing, "BLOCK_TOKENS", 16 * 8)
    pack(tmp_path, 32)
    tokens, _ = PackedRows.open(tmp_path).read(np.arange(32))
    blocks = {tuple(tokens[start : start + 8, 0]) for start in range(0, 32, 8)}
    assert len(blocks) == 4
