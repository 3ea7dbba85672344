"""Savings and memory budgets change nothing: bit for bit in bf16, token for token in float32.

In bf16 what passes through the decoder is recorded and compared, since other kernels than this
machine's round otherwise; the answers are compared as well. Models are random.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lce_core.contracts.tiny_models import VOCABULARY
from lce_core.evaluation import passes
from lce_core.evaluation.decoding import generate
from lce_core.evaluation.windows import LossCache
from lce_core.extension.extended_model import ExtendedModel
from tests.support.cells import benchmark, request
from tests.support.losses import window_nll
from tests.support.toy_models import tiny, toy

BUDGETS = (12, 1 << 20)
Pass = tuple[tuple[tuple[int, ...], ...], int]
"""Ids of a forward pass (rows of tokens) and tokens in the cache before it."""


@cache
def model(name: str, dtype: torch.dtype = torch.bfloat16) -> ExtendedModel:
    return tiny(name, dtype)


def prompts_that_begin_alike(number: int = 6) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    shots = rng.integers(VOCABULARY, size=28)
    sizes = rng.integers((12, 1), (28, 8), size=(number, 2))
    return [np.concatenate([shots[:n], rng.integers(VOCABULARY, size=m)]) for n, m in sizes]


@contextmanager
def recorded(asked: ExtendedModel) -> Iterator[list[Pass]]:
    found: list[Pass] = []

    def note(_: Any, __: Any, given: dict[str, Any]) -> None:
        cache = given.get("past_key_values")
        ids = tuple(map(tuple, given["input_ids"].tolist()))
        found.append((ids, 0 if cache is None else cache.get_seq_length()))

    with asked.model.get_decoder().register_forward_pre_hook(note, with_kwargs=True):
        yield found


def answers(asked: ExtendedModel, prompts: list[np.ndarray], **how: Any) -> list[list[int]]:
    found = generate(asked, prompts, max_new_tokens=4, **how)
    return [answer.tolist() for answer in found]


@pytest.fixture
def short_pieces(monkeypatch) -> None:
    monkeypatch.setattr(passes, "PIECE", 6)


@pytest.mark.parametrize("method", ["none", "dynamic_yarn", "self_extend", "landmark"])
def test_in_bf16_no_answer_follows_budget_or_sharing(method, short_pieces):
    asked, prompts = model(method), prompts_that_begin_alike()
    expected = answers(asked, prompts, batch_tokens=8192, share_prefixes=False)
    for budget in BUDGETS:
        for share in (True, False):
            assert answers(asked, prompts, batch_tokens=budget, share_prefixes=share) == expected
    # Nor what else is asked, nor when others stop.
    assert answers(asked, prompts[::2], batch_tokens=50) == expected[::2]
    rules = [lambda ids, number=number: len(ids) >= 1 + number % 4 for number in range(6)]
    stopped = answers(asked, prompts, batch_tokens=50, stop=rules)
    assert stopped == [answer[: 1 + number % 4] for number, answer in enumerate(expected)]


def test_in_bf16_what_prompts_share_is_processed_once_by_whole_pieces(short_pieces):
    asked = model("none")
    prompts = prompts_that_begin_alike()
    with recorded(asked) as seen:
        generate(asked, prompts, max_new_tokens=1, batch_tokens=8192)
    assert all(len(ids) == 1 and len(ids[0]) <= 6 for ids, _ in seen)
    # Every piece of the prompts' tree once, where it is whole and not a prompt's last.
    pieces = {
        (tuple(text[:end])) for text in prompts for end in [*range(6, len(text), 6), len(text)]
    }
    assert len(seen) == len(pieces)


@given(
    st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=12), min_size=1, max_size=5),
    st.integers(1, 5),
)
def test_in_bf16_shared_prompts_make_passes_that_they_make_by_themselves(prompts, piece):
    asked = model("yarn")
    found = [np.array(prompt, dtype=np.int64) for prompt in prompts]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(passes, "PIECE", piece)
        alone: list[Pass] = []
        expected = []
        for text in found:
            with recorded(asked) as seen:
                expected += answers(asked, [text], batch_tokens=3, share_prefixes=False)
            alone += seen
        with recorded(asked) as together:
            shared = answers(asked, found, batch_tokens=1000)
    assert shared == expected
    assert set(together) == set(alone)


@pytest.mark.parametrize("method", ["none", "yarn", "self_extend"])
def test_in_bf16_a_window_passes_by_itself_and_reads_nothing_off(method):
    asked = model(method)
    windows = np.random.default_rng(5).integers(VOCABULARY, size=(5, 40))
    with recorded(asked) as seen:
        losses = [window_nll(asked, windows, batch_tokens=budget) for budget in BUDGETS]
    assert {len(ids) for ids, _ in seen} == {1}
    np.testing.assert_array_equal(*losses)
    assert not asked.begins_alike(20, 40)
    assert model(method, torch.float32).begins_alike(20, 40)


@pytest.mark.parametrize(
    ("name", "size"), [("perplexity", {"max_tokens": 1000}), ("long_eval", {"num_samples": 4})]
)
def test_in_bf16_a_cell_follows_neither_the_budget_nor_the_cells_before_it(name, size):
    asked = benchmark(name, profile="tiny", **size)
    cell = replace(request(asked, 130), model=toy("yarn", torch.bfloat16))
    cells = [replace(cell, batch_tokens=budget, losses=LossCache()) for budget in (64, 1 << 20)]
    losses = LossCache()
    asked.evaluate(replace(cell, eval_length=260, losses=losses))
    results = [asked.evaluate(one) for one in (*cells, replace(cell, losses=losses))]
    for other in results[1:]:
        assert (other.scores, other.samples) == (results[0].scores, results[0].samples)


@pytest.mark.parametrize("method", ["none", "yarn", "self_extend"])
def test_in_float32_answers_are_token_equal_with_and_without_savings(method):
    asked, prompts = model(method, torch.float32), prompts_that_begin_alike()
    expected = answers(asked, prompts, batch_tokens=50, share_prefixes=False)
    for budget in BUDGETS:
        for share in (True, False):
            assert answers(asked, prompts, batch_tokens=budget, share_prefixes=share) == expected
