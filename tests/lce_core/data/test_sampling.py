"""Synthetic corpora with known mixtures: shares, keep rates and order of the draw are compared with
what the definition says, within four standard deviations where chance decides."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lce_core.data.sampling import Draw, draw_documents
from lce_core.errors import DataError
from lce_core.recipe import Upsampling

NAMES = ("web", "books", "code")
MIX = Upsampling(long_document_tokens=1000, short_keep_rate=0.1)
KEEP_ALL = Upsampling(long_document_tokens=1, short_keep_rate=1.0)


def corpus(seed: int = 0, size: int = 30_000) -> tuple[np.ndarray, np.ndarray]:
    """Many short web pages, few long books, code in between."""
    rng = np.random.default_rng(seed)
    domains = rng.choice(3, size=size, p=[0.8, 0.02, 0.18])
    scale = np.array([300.0, 20_000.0, 900.0])[domains]
    return domains, (rng.exponential(scale) + 1).astype(np.int64)


def draw(domains: Any, lengths: Any, budget: int, seed: int = 0, mix: Upsampling = MIX) -> Draw:
    return draw_documents(
        np.array(domains), np.array(lengths), NAMES, budget=budget, upsampling=mix, seed=seed
    )


def test_a_draw_has_the_corpus_shares_of_domains_to_the_token():
    domains, lengths = corpus()
    budget = int(lengths.sum() // 5)
    drawn = draw(domains, lengths, budget)
    for domain in range(3):
        share = lengths[domains == domain].sum() / lengths.sum()
        tokens = drawn.tokens[domains[drawn.documents] == domain].sum()
        assert abs(tokens - share * budget) < 1


def test_long_documents_are_always_kept_and_short_ones_at_the_rate():
    domains, lengths = corpus()
    drawn = draw(domains, lengths, int(lengths.sum() // 5))
    assert drawn.passes.max() == 0
    web = drawn.documents[domains[drawn.documents] == 0]
    long = lengths >= MIX.long_document_tokens
    candidates = domains == 0
    # Kept long and short documents are in the ratio of candidates, short ones at a tenth.
    expected = 0.1 * (candidates & ~long).sum() / (candidates & long).sum()
    kept_long, kept_short = long[web].sum(), (~long[web]).sum()
    error = expected * np.sqrt(1 / kept_long + 1 / kept_short)
    assert abs(kept_short / kept_long - expected) < 4 * error


@given(
    lengths=st.lists(st.integers(0, 3000), min_size=1, max_size=30),
    budget=st.integers(1, 50_000),
    seed=st.integers(0, 100),
    data=st.data(),
)
def test_every_budget_is_met_in_the_corpus_mixture_and_no_pass_repeats_a_document(
    lengths, budget, seed, data
):
    sizes = np.array(lengths)
    domains = np.array(
        data.draw(st.lists(st.integers(0, 2), min_size=len(lengths), max_size=len(lengths)))
    )
    if sizes.sum() == 0:
        with pytest.raises(DataError, match="no tokens"):
            draw(domains, sizes, budget, seed)
        return
    drawn = draw(domains, sizes, budget, seed)
    assert drawn.tokens.sum() == budget
    assert ((drawn.tokens > 0) & (drawn.tokens <= sizes[drawn.documents])).all()
    pairs = list(zip(drawn.documents.tolist(), drawn.passes.tolist(), strict=True))
    assert len(set(pairs)) == len(pairs)
    is_long = sizes[drawn.documents] >= 1000
    for domain, entry in enumerate(drawn.statistics):
        of_domain = domains[drawn.documents] == domain
        assert (drawn.tokens < sizes[drawn.documents])[of_domain].sum() <= 1
        assert entry["share"] == pytest.approx(sizes[domains == domain].sum() / sizes.sum())
        assert entry["drawn_tokens"] == drawn.tokens[of_domain].sum()
        assert abs(entry["drawn_tokens"] - entry["share"] * budget) < 1
        assert entry["drawn_long_tokens"] == drawn.tokens[of_domain & is_long].sum()
        assert entry["drawn_share"] == pytest.approx(entry["drawn_tokens"] / budget)
        assert entry["drawn_documents"] == of_domain.sum()
        assert entry["passes"] == drawn.passes[of_domain].max(initial=-1) + 1


def test_a_small_corpus_is_gone_through_again_in_a_new_order():
    lengths = np.full(50, 2000)
    drawn = draw(np.zeros(50, dtype=np.int64), lengths, 250 * 2000)
    assert np.bincount(drawn.passes).tolist() == [50] * 5
    orders = {tuple(drawn.documents[drawn.passes == p]) for p in range(5)}
    assert len(orders) == 5
    assert (np.diff(drawn.passes) >= 0).all()


def test_a_single_short_document_with_a_tiny_rate_still_fills_the_budget():
    rare = Upsampling(long_document_tokens=1000, short_keep_rate=1e-12)
    drawn = draw([0], [10], 95, mix=rare)
    assert drawn.documents.tolist() == [0] * 10


def test_a_document_of_just_the_length_is_long():
    rare = Upsampling(long_document_tokens=10, short_keep_rate=1e-9)
    drawn = draw([0] * 20, [10] * 20, 200, mix=rare)
    assert sorted(drawn.documents) == list(range(20))
    assert drawn.passes.max() == 0
    shorter = draw([0] * 20, [9] * 20, 180, mix=rare)
    assert shorter.passes.max() > 0


def test_domains_are_shuffled_independently():
    drawn = draw([0] * 40 + [1] * 40, [5] * 80, 400, mix=KEEP_ALL)
    first = drawn.documents[drawn.documents < 40]
    second = drawn.documents[drawn.documents >= 40] - 40
    assert sorted(first) == sorted(second) == list(range(40))
    assert first.tolist() != second.tolist()


def test_a_document_stands_where_its_middle_lies_in_its_domain():
    drawn = draw([0] + [1] * 10, [100] + [10] * 10, 200, mix=KEEP_ALL)
    assert drawn.documents.tolist().index(0) == 5
