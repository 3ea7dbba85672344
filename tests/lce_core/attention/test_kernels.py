"""Kernels of models without schemes: on the CPU dense stand-ins run, marked `gpu` the real ones."""

import sys
from collections.abc import Iterator
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.attention import SDPBackend, _registry, current_flash_attention_impl, sdpa_kernel
from torch.nn.attention import varlen as torch_varlen

from lce_core.attention import causal, flash, registered
from lce_core.attention.schemes import FullCausal
from lce_core.contracts.tiny_models import BASES, TARGET, stock, tokens
from lce_core.errors import SpecError
from lce_core.evaluation.decoding import generate
from lce_core.extension import extending, kernels
from lce_core.extension.extended_model import ExtendedModel
from lce_core.extension.extending import extend
from lce_core.extension.kernels import KernelWatch
from lce_core.models import LanguageModel
from lce_core.training.recomputation import enable
from tests.support import flash_functions
from tests.support.extended_models import method
from tests.support.recorded_operations import OperationRecorder

CUDA, META = torch.device("cuda"), torch.device("meta")
HEADS, KV_HEADS = 4, 2
SHAPES = [(17, 17), (5, 17), (1, 17)]
over_shapes = pytest.mark.parametrize(("num_queries", "num_keys"), SHAPES)
States = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


@pytest.fixture
def package(monkeypatch) -> flash_functions.Package:
    stub, module = flash_functions.Package(), ModuleType("flash_attn")
    monkeypatch.setattr(module, "flash_attn_func", stub.flash_attn_func, raising=False)
    monkeypatch.setitem(sys.modules, "flash_attn", module)
    return stub


@pytest.fixture
def flash3(monkeypatch) -> Iterator[list[str]]:
    log: list[str] = []

    class Handle:
        def remove(self) -> None:
            log.append("removed")

    def register() -> Handle:
        log.append("registered")
        return Handle()

    monkeypatch.setitem(_registry._FLASH_ATTENTION_IMPLS, "FA3", register)
    yield log
    kernels.activate("sdpa")


def draw(num_queries: int, num_keys: int, **how: Any) -> States:
    torch.manual_seed(3)
    made = ((HEADS, num_queries), (KV_HEADS, num_keys), (KV_HEADS, num_keys))
    how = {"dtype": torch.float64, **how}
    query, key, value = (torch.randn(1, *sizes, 32, **how) for sizes in made)
    return query, key, value


def runs(model: Any, base: LanguageModel, kernel: str, **how: Any) -> ExtendedModel:
    """Return the model with this kernel, which `extend` would choose on some GPU only."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(extending, "choose", lambda *_: kernel)
        extended = extend(model, base, method("none"), target=TARGET, **how)
    extended.begin_request(40)
    return extended


@over_shapes
def test_the_package_aligns_the_last_query_with_the_last_key(num_queries, num_keys, package):
    states = draw(num_queries, num_keys)
    expected, lse = flash_functions.dense(*states, 0.3, (-1, 0))
    found = registered.attend_package(states, 0.3).transpose(1, 2)
    torch.testing.assert_close(found, expected)
    ours = flash.attend_causal(*states, 0.3)
    torch.testing.assert_close((ours.output, ours.lse), (found, lse))
    assert package.calls == [(num_queries, num_keys)]


def test_the_package_gets_states_of_one_dtype(package):
    query, key, value = draw(9, 9)
    found = registered.attend_package((query, key, value.float()), 0.3)
    assert (found.dtype, package.calls) == (torch.float32, [(9, 9)])


@pytest.mark.parametrize("function", [registered._stock_attention, registered._with_package])
def test_every_kernel_has_the_models_dropout(function, package, monkeypatch):
    for module in (registered, causal):
        monkeypatch.setattr(module, "kernel_for", lambda *_: "spread")
    output, _ = function(torch.nn.Module(), *draw(17, 17), None, scaling=0.3, dropout=1.0)
    assert not output.any()


def test_token_graphs_packed_texts_and_mixed_lengths_work_with_the_package(package):
    base = BASES[1]
    prompts = [np.asarray(tokens(n, seed=n)[0]) for n in (9, 20, 20, 28)]
    prompts += [np.concatenate([prompts[-1], prompts[n]]) for n in range(2)]
    plain, other, recorded = (
        runs(stock(base), base, name) for name in ("sdpa", "flash_attention_2", "flash_attention_2")
    )
    recorded.replay_tokens(OperationRecorder())
    assert other.packs
    assert other.mixes_lengths
    expected, packed, mixed, replayed = (
        generate(model, prompts, max_new_tokens=6, batch_tokens=48, share_prefixes=shares)
        for model, shares in ((plain, True), (other, True), (other, False), (recorded, False))
    )
    assert recorded.replayed_tokens
    assert package.calls
    for answer, *others in zip(expected, packed, mixed, replayed, strict=True):
        for another in others:
            np.testing.assert_array_equal(answer, another)


@pytest.mark.parametrize("kernel", ["flash_attention_2", "torch_flash", "flash3"])
@pytest.mark.parametrize(
    ("base", "kept"),
    [(BASES[0], "none"), (BASES[1], "attention"), (BASES[2], "full")],
    ids=["none", "attention", "full"],
)
def test_gradients_are_those_of_sdpa(base, kernel, kept, package, flash3):
    weights = []
    for name in ("sdpa", kernel):
        model = runs(stock(base).train(), base, name, training=True)
        enable(model.model, kept)
        model.hidden_states(tokens(40, batch=2)).square().sum().backward()
        weights.append(model.model.get_input_embeddings().weight.grad)
    torch.testing.assert_close(weights[1], weights[0], rtol=1e-4, atol=1e-6)
    assert bool(package.calls) == (kernel == "flash_attention_2")
    assert ("registered" in flash3) == (kernel == "flash3")


def test_torch_flash_excludes_other_kernels_of_sdpa_only_during_attention(monkeypatch):
    allowed: list[bool] = []
    original = registered.sdpa_attention_forward

    def noted(*args: Any, **kwargs: Any) -> Any:
        allowed.append(torch.backends.cuda.cudnn_sdp_enabled())
        return original(*args, **kwargs)

    monkeypatch.setattr(registered, "sdpa_attention_forward", noted)
    model = runs(stock(BASES[0]).train(), BASES[0], "torch_flash", training=True)
    enable(model.model, "full")
    loss = model.hidden_states(tokens(40)).sum()
    assert torch.backends.cuda.cudnn_sdp_enabled()
    loss.backward()
    # Each layer is computed twice, the second time in the backward pass.
    assert allowed == [False] * 2 * model.model.config.num_hidden_layers


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("kernel", ["flash_attention_2", "torch_flash"])
def test_compiled_layers_are_one_graph(kernel, package):
    model = runs(stock(BASES[0]).train(), BASES[0], kernel, training=True)
    expected = model.hidden_states(tokens(40))
    torch.compiler.reset()
    for layer in model.model.model.layers:
        layer.compile(backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(model.hidden_states(tokens(40)), expected)
    torch.compiler.reset()


def test_a_gpu_runs_what_it_has(monkeypatch):
    installed: dict[str, bool] = {}
    capability = [(8, 0)]
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability[0])
    monkeypatch.setattr(kernels, "is_flash_attn_2_available", lambda: installed.get("2", False))
    monkeypatch.setattr(kernels, "find_spec", lambda name: installed.get(name))

    def chosen(kernel: Any) -> str:
        return kernels.choose(CUDA, torch.bfloat16, kernel)

    assert kernels.choose(CUDA, torch.float32, "auto", FullCausal()) == "blocked"
    assert kernels.choose(CUDA, torch.bfloat16, "flash", FullCausal()) == "torch_flash"
    for device in (torch.device("cpu"), CUDA):
        with pytest.raises(SpecError, match=r"or use one of auto, sdpa$"):
            kernels.choose(device, torch.float32, "flash")
    assert [chosen(kernel) for kernel in ("auto", "flash")] == ["sdpa", "torch_flash"]
    installed["2"] = True
    assert [chosen(kernel) for kernel in ("auto", "flash")] == ["flash_attention_2"] * 2
    with pytest.raises(SpecError, match=r"capability 9 \(H100, H200\).* auto, sdpa, flash$"):
        chosen("flash3")
    capability[0] = (9, 0)
    assert [chosen(kernel) for kernel in ("auto", "flash")] == ["sdpa", "flash_attention_2"]
    with pytest.raises(SpecError, match="flash_attn_interface"):
        chosen("flash3")
    installed["flash_attn_interface"] = True
    assert chosen("flash3") == "flash3"
    with pytest.raises(SpecError, match=r"'flash3' on cuda with torch\.float32"):
        kernels.choose(CUDA, torch.float32, "flash3")


def test_flash3_is_active_for_requests_of_its_own_models(flash3):
    own = runs(stock(BASES[0]), BASES[0], "flash3")
    own.begin_request(30)
    assert (current_flash_attention_impl(), flash3) == ("FA3", ["registered"])
    other = runs(stock(BASES[0]), BASES[0], "sdpa")
    assert (current_flash_attention_impl(), flash3) == (None, ["registered", "removed"])
    own.begin_request(40)
    assert current_flash_attention_impl() == "FA3"
    other.begin_request(40)
    assert current_flash_attention_impl() is None


@pytest.mark.parametrize("tokens_of_a_text", [8, 8192], ids=["split", "varlen"])
def test_the_kernel_that_ran_is_recorded(flash3, tokens_of_a_text):
    states = draw(tokens_of_a_text, 8192, device=META, dtype=torch.bfloat16)
    for name, expected in (("sdpa", "torch_flash"), ("flash3", "flash3")):
        kernels.activate(name)
        with KernelWatch() as watch:
            part = flash._flash_cuda(states, 0.3, causal=True)
        assert watch.names() == expected
        assert part.output.shape == states[0].shape
        assert part.lse.shape == states[0].shape[:3]


@over_shapes
@pytest.mark.parametrize(
    ("is_causal", "window"), [(False, None), (True, None), (True, 1), (True, 4), (True, 40)]
)
def test_the_public_function_gets_what_the_private_one_gets(
    num_queries, num_keys, is_causal, window, monkeypatch
):
    monkeypatch.setattr(torch_varlen, "varlen_attn", flash_functions.varlen_attn)
    monkeypatch.setattr(flash, "_FULL_GPU", HEADS)
    states = draw(num_queries, num_keys)
    found = flash._flash_cuda(states, 0.3, causal=is_causal, window=window)
    if window is not None:
        expected = flash.attend_window(*states, 0.3, window)
    elif is_causal:
        expected = flash.attend_causal(*states, 0.3)
    else:
        expected = flash.attend_all(*states, 0.3)
    torch.testing.assert_close(found, expected)


@pytest.mark.gpu
@pytest.mark.parametrize(("num_queries", "num_keys"), [(1024, 1024), (1024, 3000), (7, 3000)])
def test_kernels_of_a_gpu_agree_within_bf16(num_queries, num_keys, monkeypatch):
    states = draw(num_queries, num_keys, dtype=torch.bfloat16, device=CUDA)
    expected, lse = flash_functions.dense(*(one.double().cpu() for one in states), 0.1, (-1, 0))
    outputs = []
    for full in (1, 1 << 40):  # varlen_attn, then the function that splits keys
        monkeypatch.setattr(flash, "_FULL_GPU", full)
        part = flash.attend_causal(*states, 0.1)
        torch.testing.assert_close(part.lse.double().cpu(), lse, rtol=1e-3, atol=1e-3)
        outputs.append(part.output)
    if num_queries == num_keys:
        for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION):
            with sdpa_kernel(backend), torch.enable_grad():
                outputs.append(causal.attend_square(states, 0.1))
    if find_spec("flash_attn") is not None:
        outputs.append(registered.attend_package(states, 0.1).transpose(1, 2))
    for output in outputs:
        torch.testing.assert_close(output.double().cpu(), expected, rtol=3e-2, atol=3e-2)
