"""Extended tiny Llama (MHA, GQA) and Phi models against stock transformers, and refusals."""

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from transformers import DynamicCache, LlamaForCausalLM, StaticCache

from lce_core.attention.registered import PACKAGE, STOCK, TORCH_FLASH
from lce_core.attention.rotary import RequestRotary
from lce_core.contracts.tiny_models import (
    BASES,
    TARGET,
    VOCABULARY,
    Tiny,
    logits,
    stock,
    tokens,
)
from lce_core.errors import SpecError, UnavailableError
from lce_core.extension import kernels
from lce_core.extension.extending import extend, use_kernel
from lce_core.models import LanguageModel
from lce_core.rope import RopeGeometry, RopeTable
from tests.support.extended_models import method, over_bases


def test_a_request_can_be_trained_on_after_it_was_evaluated_in_inference_mode():
    for chosen in (method("yarn"), method("harpe", bases=[1e4, 2e4, 3e4, 4e4])):
        extended = extend(stock(BASES[0]), BASES[0], chosen, target=TARGET)
        extended.begin_request(20)
        with torch.inference_mode():
            extended.model(tokens(20))
        with torch.enable_grad():
            extended.model(tokens(20)).logits.sum().backward()
        assert all(p.grad is not None for p in extended.model.parameters())


@over_bases
def test_casting_the_model_to_bfloat16_rounds_no_position(base):
    extended = extend(stock(base), base, method("pi"), target=32768)
    extended.model.to(torch.bfloat16)
    extended.begin_request(32768)
    rotary: Any = extended.model.model.rotary_emb
    like = torch.zeros(1, dtype=torch.bfloat16)
    positions = torch.arange(32768)[None]
    cos, sin = rotary(like, positions)
    assert cos.dtype == sin.dtype == torch.float32
    inv_freq = base.geometry.inv_freq() / 2048
    angles = torch.from_numpy(np.outer(np.arange(32768), np.tile(inv_freq, 2)))
    assert (cos[0].double() - angles.cos()).abs().max() < 1e-7
    assert (sin[0].double() - angles.sin()).abs().max() < 1e-7


class OnGpu(torch.Tensor):
    """A tensor that says it lies on a GPU."""

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return torch.device("cuda")


@pytest.mark.parametrize("gaps", [[[0, 1, 2, 4]], [[0, 1, 0, 1]], [[0, 1, 2, 3], [3, 2, 1, 0]]])
def test_positions_that_a_scheme_would_ignore_are_refused_on_a_gpu_too(gaps):
    rotary = RequestRotary(8, identity=True)
    rotary.begin(RopeTable(np.ones(4)), 8)
    with pytest.raises(SpecError, match="position_ids: got gaps or restarts"):
        rotary(torch.ones(1, 4, 8), torch.tensor(gaps).as_subclass(OnGpu))
    rotary(torch.ones(1, 4, 8), torch.tensor([[4, 5, 6, 7]]).as_subclass(OnGpu))
    with pytest.raises(SpecError, match="got 9 tokens"):
        rotary(torch.ones(1, 4, 8), torch.tensor([[5, 6, 7, 8]]).as_subclass(OnGpu))


def test_extending_one_model_leaves_others_with_its_configuration_alone():
    base, ids = BASES[0], tokens(40)
    first = stock(base)
    second = LlamaForCausalLM(first.config).double().eval()
    before = second(ids).logits
    extended = extend(first, base, method("self_extend"), target=TARGET)
    assert torch.equal(second(ids).logits, before)
    assert extended.model.config is not second.config
    assert second.config._attn_implementation == "sdpa"


@pytest.mark.parametrize("name", ["none", "harpe", "clex", "self_extend", "landmark"])
def test_extending_again_replaces_the_first_method_and_saves_a_stock_model(name, tmp_path):
    base, ids = BASES[0], tokens(40)
    expected = logits(extend(stock(base), base, method(name), target=TARGET), ids)
    for earlier in ("yarn", "self_extend"):
        model = stock(base)
        extend(model, base, method(earlier), target=TARGET).begin_request(10)
        assert torch.equal(logits(extend(model, base, method(name), target=TARGET), ids), expected)
    model.save_pretrained(tmp_path)
    loaded = LlamaForCausalLM.from_pretrained(tmp_path, dtype=torch.float64).eval()
    assert loaded.config._attn_implementation == "sdpa"
    # A method may have added tokens of its own, at the end.
    found, unextended = loaded(ids).logits[..., :VOCABULARY], stock(base)(ids).logits
    torch.testing.assert_close(found, unextended, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["ntk_frozen", "self_extend"])
def test_requests_are_begun_and_keep_their_length(name):
    extended = extend(stock(BASES[0]), BASES[0], method(name), target=TARGET)
    with pytest.raises(SpecError, match="begin_request"):
        extended.model(tokens(8))
    if name == "self_extend":
        with pytest.raises(UnavailableError, match="'self_extend', which supports up to 40 tokens"):
            extended.begin_request(41)
    extended.begin_request(20)
    cache = DynamicCache()
    extended.model(tokens(20), past_key_values=cache, use_cache=True)
    with pytest.raises(SpecError, match="got 21 tokens; expected at most the 20"):
        extended.model(tokens(1), past_key_values=cache, use_cache=True)


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"attention_mask": torch.tensor([[0, 0, 1, 1, 1, 1], [1] * 6])}, "padding"),
        ({"attention_mask": torch.zeros(2, 1, 6, 6)}, "4-D mask"),
        ({"position_ids": torch.tensor([[0, 1, 2, 0, 1, 2]])}, "packed"),
    ],
)
def test_masks_a_scheme_would_ignore_are_refused(arguments, match):
    extended = extend(stock(BASES[0]), BASES[0], method("self_extend"), target=TARGET)
    ids = tokens(6)
    expected = logits(extended, ids)
    ones = torch.ones_like(ids)
    assert torch.equal(extended.model(ids, attention_mask=ones, use_cache=False).logits, expected)
    with pytest.raises(SpecError, match=match):
        extended.model(ids, **arguments, use_cache=False)


def test_a_scheme_takes_neither_empty_slots_of_a_cache_nor_dropout():
    extended = extend(stock(BASES[0]), BASES[0], method("self_extend"), target=TARGET)
    extended.begin_request(20)
    cache = StaticCache(config=extended.model.config, max_cache_len=20)
    with pytest.raises(SpecError, match="DynamicCache"):
        extended.model(tokens(6), past_key_values=cache, use_cache=True)
    for layer in extended.model.train().model.layers:
        layer.self_attn.attention_dropout = 0.1
    with pytest.raises(SpecError, match=r"attention dropout: got 0\.1"):
        logits(extended, tokens(8))


def test_the_hub_is_never_asked_for_a_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    # A GPU model without the flash-attn package, for which transformers would try the hub.
    model = stock(BASES[0]).to(torch.bfloat16)
    monkeypatch.setattr(type(model), "device", torch.device("cuda"))
    monkeypatch.setattr(kernels, "is_flash_attn_2_available", lambda: False)
    extended = extend(model, BASES[0], method("pi"), target=TARGET)
    assert (extended.kernel, extended.model.config._attn_implementation) == ("sdpa", STOCK)


@pytest.mark.parametrize(
    ("kernel", "package", "expected", "function"),
    [
        ("flash", False, "torch_flash", TORCH_FLASH),
        ("flash", True, "flash_attention_2", PACKAGE),
        ("auto", False, "sdpa", "sdpa"),
    ],
)
def test_a_model_without_a_method_uses_the_kernel_of_the_study(
    monkeypatch, kernel, package, expected, function
):
    model, other = stock(BASES[0]), stock(BASES[0])
    monkeypatch.setattr(kernels, "is_flash_attn_2_available", lambda: package)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    assert use_kernel(model, kernel, torch.device("cuda"), torch.bfloat16) == expected
    assert model.config._attn_implementation == function
    assert other.config._attn_implementation == "sdpa"


class OtherGeometry(LanguageModel):
    geometry: ClassVar[RopeGeometry] = replace(Tiny.geometry, theta=5e5)


def test_what_does_not_fit_is_refused_before_the_model_is_touched():
    model = stock(BASES[0])
    with pytest.raises(SpecError, match=r"theta: got 10000.0; expected 500000.0"):
        extend(model, OtherGeometry(), method("pi"), target=TARGET)
    with pytest.raises(SpecError, match=r"lm_infinite\.window"):
        extend(model, BASES[0], method("lm_infinite", window=17), target=TARGET)
    assert not isinstance(model.model.rotary_emb, RequestRotary)
    scaled = stock(BASES[0], rope_type="linear", factor=4.0)
    with pytest.raises(SpecError, match="rope_type: got linear; expected 'default'"):
        extend(scaled, BASES[0], method("pi"), target=TARGET)
