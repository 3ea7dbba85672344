"""Texts in pieces without masks, against stock transformers in one pass or with its masks."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import DynamicCache, StaticCache
from transformers.masking_utils import causal_mask_function

from lce_core.attention import causal, registered
from lce_core.contracts.tiny_models import TARGET, stock, tokens
from lce_core.extension.extended_model import ExtendedModel
from lce_core.extension.extending import extend
from lce_core.models import LanguageModel
from tests.support.extended_models import method, over_bases

pytestmark = pytest.mark.usefixtures("inference")


def extended(base: LanguageModel, **how: Any) -> ExtendedModel:
    model = extend(stock(base), base, method("none"), target=TARGET, **how)
    model.begin_request(40)
    return model


def whole(base: LanguageModel) -> torch.Tensor:
    return stock(base).model(tokens(40)).last_hidden_state


class Masks(TorchDispatchMode):
    """Notes the shapes of tensors of truth values: masks are made of them."""

    def __init__(self) -> None:
        super().__init__()
        self.shapes: list[tuple[int, ...]] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor) and result.dtype == torch.bool and result.ndim > 1:
            self.shapes.append(tuple(result.shape))
        return result


@over_bases
@pytest.mark.parametrize("cuts", [(20, 1, 19), (1, 38, 1)])
def test_pieces_have_no_mask_and_equal_one_pass(base, cuts):
    model, cache = extended(base), DynamicCache()
    with Masks() as masks:
        pieces = [model.hidden_states(piece, cache) for piece in tokens(40).split(cuts, dim=1)]
    assert [shape for shape in masks.shapes if shape[-1] > 1 and shape[-2] > 1] == []
    torch.testing.assert_close(torch.cat(pieces, dim=1), whole(base), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("groups", [1, 3])
def test_a_square_is_plain_attention_whether_heads_are_spread_or_shared(groups, monkeypatch):
    torch.manual_seed(5)
    drawn = [torch.randn(2, heads, 17, 8, dtype=torch.float64) for heads in (2 * groups, 2, 2)]
    query, key, value = drawn
    spread = [states.repeat_interleave(groups, dim=1) for states in (key, value)]
    scores = (query @ spread[0].mT * 0.3).masked_fill(torch.ones(17, 17).triu(1) > 0, -torch.inf)
    expected = scores.softmax(-1) @ spread[1]
    torch.testing.assert_close(causal.attend_square(drawn, 0.3), expected)
    monkeypatch.setattr(causal, "kernel_for", lambda *_: "spread")
    torch.testing.assert_close(causal.attend_square(drawn, 0.3), expected)


@pytest.mark.parametrize(
    ("device", "dtype", "keys", "heads", "expected"),
    [
        ("cuda", torch.float32, 17, 3, "spread"),
        ("cuda", torch.float32, 17, 1, "sdpa"),
        ("cuda", torch.float32, 18, 3, "flash"),
        ("cuda", torch.bfloat16, 17, 3, "flash"),
        ("cpu", torch.float32, 17, 3, "sdpa"),
        ("cpu", torch.float32, 18, 3, "flash"),
    ],
)
def test_the_kernel_follows_device_type_and_shape(
    device, dtype, keys, heads, expected, monkeypatch
):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    place = {"device": torch.device(device), "dtype": dtype}
    query, key = (
        SimpleNamespace(shape=(1, heads, 17, 8), **place),
        SimpleNamespace(shape=(1, 1, keys, 8)),
    )
    with torch.no_grad():
        assert causal.kernel_for(query, key) == expected


def test_cudnn_builds_plans_only_for_shapes_that_come_again(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(causal, "_PLANNED_TOKENS", 8)
    place = {"device": torch.device("cuda"), "dtype": torch.bfloat16}
    texts: list[Any] = [SimpleNamespace(shape=(1, 1, n, 8), **place) for n in (5, 8, 11, 16)]
    with torch.no_grad():
        found = [causal.kernel_for(text, text) for text in texts]
    assert found == ["flash", "sdpa", "flash", "sdpa"]
    with torch.enable_grad():  # training rows
        assert causal.kernel_for(texts[0], texts[0]) == "sdpa"


@over_bases
def test_masks_of_callers_and_of_static_caches_are_kept(base):
    model, expected = extended(base), whole(base)
    cache: Any = StaticCache(config=model.model.config, max_cache_len=40)
    decoder: Any = model.model.get_decoder()
    pieces = [
        decoder(input_ids=piece, past_key_values=cache, use_cache=True).last_hidden_state
        for piece in tokens(40).split((25, 14, 1), dim=1)
    ]
    torch.testing.assert_close(torch.cat(pieces, dim=1), expected, rtol=1e-4, atol=1e-4)
    padding = torch.ones(2, 40, dtype=torch.long)
    padding[:, :3] = 0
    ours = decoder(input_ids=tokens(40), attention_mask=padding, use_cache=False)
    theirs = stock(base).model(tokens(40), attention_mask=padding, use_cache=False)
    states, others = ours.last_hidden_state[:, 3:], theirs.last_hidden_state[:, 3:]
    torch.testing.assert_close(states, others, rtol=1e-4, atol=1e-4)


@over_bases
def test_pieces_that_record_gradients_have_their_masks(base):
    model, cache = extended(base), DynamicCache()
    with torch.enable_grad():
        pieces = [model.hidden_states(piece, cache) for piece in tokens(40).split(20, dim=1)]
        torch.cat(pieces, dim=1).square().sum().backward()
    other = stock(base)
    with torch.enable_grad():
        other.model(tokens(40)).last_hidden_state.square().sum().backward()
    ours, theirs = (one.get_input_embeddings().weight.grad for one in (model.model, other))
    torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-3)


def test_a_single_token_has_no_mask_even_while_a_graph_is_recorded():
    place = {"q_length": 1, "kv_length": 30, "q_offset": 29, "attention_mask": None}
    where = {"batch_size": 1, "device": torch.device("cuda"), "dtype": torch.float32}
    # Without a fast kernel for fp32 on CUDA, and as transformers asks while it records.
    mask = registered._stock_mask(
        **place, **where, mask_function=causal_mask_function, allow_is_causal_skip=False
    )
    assert mask is None
