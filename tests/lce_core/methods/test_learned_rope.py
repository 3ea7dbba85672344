"""learned_rope against a Llama of a few lines, whose queries and keys are complex numbers."""

from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn.functional import cross_entropy, embedding, linear, silu

from lce_core.contracts.tiny_models import BASES, TARGET, logits, stock, tokens
from lce_core.evaluation.decoding import generate
from lce_core.extension.extended_model import ExtendedModel
from lce_core.extension.extending import extend
from lce_core.extension.learned import LEARNED
from lce_core.models import LanguageModel
from lce_core.training.recomputation import enable
from lce_core.training.run import run
from tests.support.extended_models import method
from tests.support.recorded_operations import OperationRecorder
from tests.support.training_jobs import BASE, job_maker, silent

LAYERS, FACTOR = 3, 10.0
over_sharings = pytest.mark.parametrize("sharing", ["all", "layer", "head"])
over_llamas = pytest.mark.parametrize("base", BASES[:2], ids=["heads", "grouped"])


def learned(base: LanguageModel, sharing: str, **given: Any) -> ExtendedModel:
    """A model whose learned parameters are drawn from the seed 5."""
    given = {"sharing": sharing, "learning_rate_factor": FACTOR, **given}
    model = extend(stock(base, LAYERS), base, method("learned_rope", **given), target=TARGET)
    parameter: Any = model.model.model.rotary_emb.log_multipliers
    with torch.no_grad():
        parameter.normal_(0, 0.3 / FACTOR, generator=torch.Generator().manual_seed(5))
    return model


def plain_logits(weights: dict[str, Tensor], base: LanguageModel, ids: Tensor, logs: Tensor) -> Any:
    """Logits of a Llama whose frequencies are multiplied by exp of (layers, kv_heads, pairs)."""
    sizes, length = base.geometry, ids.shape[1]
    pairs, group = sizes.head_dim // 2, sizes.num_heads // sizes.num_kv_heads
    plain = 1e4 ** (-torch.arange(pairs).double() / pairs)

    def norm(x: Tensor, name: str) -> Tensor:
        x = x.float()  # as Llama's norms do
        return (x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt()).double() * weights[name]

    def project(x: Tensor, name: str) -> Tensor:
        return linear(x, weights[f"{name}.weight"])

    x = embedding(ids, weights["model.embed_tokens.weight"])
    for index in range(len(logs)):
        layer = f"model.layers.{index}"
        angles = torch.arange(length)[:, None] * (plain * logs[index].exp())[:, None]
        turned = torch.polar(torch.ones_like(angles), angles)
        seen = norm(x, f"{layer}.input_layernorm.weight")

        def heads(name: str, seen: Tensor = seen, layer: str = layer) -> Tensor:
            states = project(seen, f"{layer}.self_attn.{name}_proj").unflatten(2, (-1, 2 * pairs))
            states = states.transpose(1, 2)
            return states if name == "q" else states.repeat_interleave(group, 1)

        query, key = (
            torch.complex(*heads(name).chunk(2, dim=-1)) * turned.repeat_interleave(group, 0)
            for name in "qk"
        )
        scores = (query @ key.mH).real / (2 * pairs) ** 0.5
        later = torch.ones(length, length).triu(1).bool()
        mixed = scores.masked_fill(later, -torch.inf).softmax(-1) @ heads("v")
        x = x + project(mixed.transpose(1, 2).flatten(2), f"{layer}.self_attn.o_proj")
        seen = norm(x, f"{layer}.post_attention_layernorm.weight")
        gate, up = (project(seen, f"{layer}.mlp.{name}_proj") for name in ("gate", "up"))
        x = x + project(silu(gate) * up, f"{layer}.mlp.down_proj")
    return project(norm(x, "model.norm.weight"), "lm_head")


@over_sharings
@over_llamas
@pytest.mark.parametrize("checkpointed", [False, True], ids=["plain", "checkpointed"])
def test_outputs_and_gradients_are_those_of_a_plain_llama(base, sharing, checkpointed):
    extended, ids = learned(base, sharing), tokens(40)
    model: Any = extended.model.train()
    if checkpointed:
        enable(model, "full")
    parameter: Any = model.model.rotary_emb.log_multipliers
    with torch.enable_grad():
        found = logits(extended, ids)
        cross_entropy(found[:, :-1].flatten(0, 1), ids[:, 1:].flatten()).backward()
        own = parameter.detach().double().requires_grad_()
        every = (FACTOR * own).expand(LAYERS, base.geometry.num_kv_heads, -1)
        weights = {
            name: tensor.detach().requires_grad_()
            for name, tensor in model.named_parameters()
            if "rotary" not in name
        }
        expected = plain_logits(weights, base, ids, every)
        cross_entropy(expected[:, :-1].flatten(0, 1), ids[:, 1:].flatten()).backward()
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    assert own.grad is not None
    assert (own.grad.abs() > 1e-6).all()
    torch.testing.assert_close(parameter.grad.double(), own.grad, rtol=1e-5, atol=1e-6)
    for name, tensor in weights.items():
        given = model.get_parameter(name).grad
        torch.testing.assert_close(given, tensor.grad, rtol=1e-5, atol=1e-6)


@torch.no_grad()
@pytest.mark.parametrize("base", BASES, ids=["heads", "grouped", "partial"])
def test_equal_multipliers_of_all_layers_and_heads_are_the_shared_form(base):
    ids, shared = tokens(40), learned(base, "all", start="yarn")
    given = shared.model.model.rotary_emb.log_multipliers
    expected = logits(shared, ids)
    assert (expected - logits(learned(base, "all"), ids)).abs().max() > 1e-2
    for sharing in ("layer", "head"):
        model = learned(base, sharing, start="yarn")
        assert (logits(model, ids) - expected).abs().max() > 1e-2
        model.model.model.rotary_emb.log_multipliers.copy_(given)
        torch.testing.assert_close(logits(model, ids), expected, rtol=1e-12, atol=1e-12)


@torch.no_grad()
@over_sharings
@pytest.mark.parametrize("base", BASES, ids=["heads", "grouped", "partial"])
def test_caches_batches_and_replayed_passes_change_no_answer(base, sharing):
    plain, recorded, ids = learned(base, sharing), learned(base, sharing), tokens(40)
    for cuts in ((20,), (7, 8, 30)):
        whole = logits(plain, ids)
        torch.testing.assert_close(logits(plain, ids, cuts), whole, rtol=1e-9, atol=1e-9)
    prompts = [np.asarray(tokens(n, seed=n)[0]) for n in (9, 20, 20, 28)]
    recorded.replay_tokens(OperationRecorder())
    expected, batched, replayed = (
        generate(model, prompts, max_new_tokens=12, batch_tokens=size)
        for model, size in ((plain, 1), (plain, 64), (recorded, 64))
    )
    assert recorded.replayed_tokens
    for answer, *others in zip(expected, batched, replayed, strict=True):
        for other in others:
            np.testing.assert_array_equal(answer, other)


@over_sharings
def test_a_checkpoint_keeps_what_training_learned_and_is_used(sharing, rows, tmp_path):
    chosen = method("learned_rope", sharing=sharing, learning_rate_factor=50.0)
    given = {"method": chosen.identity(), "target_context": 512}
    job = job_maker(rows, tmp_path)(None, **given)
    run(job, silent)
    (found,) = load_file(job.out / "model" / LEARNED).values()
    layers, heads = BASE.shape.num_layers, BASE.geometry.num_kv_heads
    shape = {"all": (1, 1), "layer": (layers, 1), "head": (layers, heads)}[sharing]
    assert found.shape == (*shape, BASE.geometry.num_pairs)
    assert found.dtype == torch.float32
    assert (found != 0).all()
    model = BASE.load(job.out / "model", torch.bfloat16)
    path = job.out / "model" / LEARNED
    extended = extend(model, BASE, chosen, target=512, learned=path)
    extended.begin_request(512)
    rotary: Any = model.model.rotary_emb
    expected = BASE.geometry.inv_freq() * (50.0 * found.double()).exp().numpy()
    table = rotary.table.inv_freq.reshape(found.shape)
    np.testing.assert_allclose(table, expected, rtol=1e-12)
    # Casting the model rounds no frequency.
    assert rotary.log_multipliers.dtype == torch.float32
