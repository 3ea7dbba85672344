"""The kernel against dense float64 attention under masks; runs against a plain torch loop."""

import math
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from accelerate import init_empty_weights
from hypothesis import assume, given
from hypothesis import strategies as st
from torch.nn.functional import cross_entropy
from transformers import AutoModelForCausalLM, LlamaForCausalLM

from lce_core.attention.causal import shifted_sparse
from lce_core.attention.inputs import AttentionInputs
from lce_core.attention.schemes import ShiftedSparse
from lce_core.contracts.tiny_models import BASES, logits, stock, tokens
from lce_core.data.packing import PackedRows
from lce_core.errors import SpecError
from lce_core.extension.extending import extend
from lce_core.methods import METHODS, LoRA, Method
from lce_core.models import MODELS, LanguageModel
from lce_core.rope import RopeTable
from lce_core.training.assembly import add_lora, merged
from lce_core.training.job import TrainingJob
from lce_core.training.run import run
from lce_core.training.schedule import learning_rate, rows_of_step
from lce_core.training.trainer import Trainer
from tests.support.extended_models import over_bases
from tests.support.oracles.placed_attention import SCALING, States, random_states
from tests.support.training_jobs import (
    BASE,
    ROW_LENGTH,
    ROWS_PER_STEP,
    job_maker,
    losses,
    save_base,
    silent,
    weights,
)

TARGET = 512
UPDATED = ("q_proj", "k_proj", "v_proj", "o_proj", "dense")


def blocks(length: int, group: int, shifted: bool) -> torch.Tensor:
    """Boolean (length, length) mask of who sees whom, from the written-out edges of blocks."""
    half = group // 2
    edges = [0, *range(half, length, group), length] if shifted else [*range(0, length + 1, group)]
    mask = torch.zeros(length, length, dtype=torch.bool)
    for start, stop in pairwise(edges):
        mask[start:stop, start:stop] = True
    return mask.tril()


def visible(length: int, group: int, heads: int) -> torch.Tensor:
    """(heads, length, length): the first heads // 2 are plain, the others shifted."""
    plain = heads // 2
    return torch.stack([blocks(length, group, shifted=head >= plain) for head in range(heads)])


def turned(states: torch.Tensor, inv_freq: torch.Tensor) -> torch.Tensor:
    """Pairs of elements as complex numbers, turned by position times frequency."""
    pairs = len(inv_freq)
    numbers = torch.complex(states[..., :pairs], states[..., pairs : 2 * pairs])
    angles = torch.arange(states.shape[2], dtype=torch.float64)[:, None] * inv_freq
    numbers = numbers * torch.polar(torch.ones_like(angles), angles)
    return torch.cat((numbers.real, numbers.imag, states[..., 2 * pairs :]), dim=-1)


def dense(states: States, inv_freq: np.ndarray, mask: torch.Tensor) -> torch.Tensor:
    """Softmax over all pairs that the mask (heads, tokens, tokens) leaves."""
    query, key, value = states
    shared = query.shape[1] // key.shape[1]
    frequencies = torch.from_numpy(inv_freq)
    key, value = (part.repeat_interleave(shared, dim=1) for part in (key, value))
    scores = turned(query, frequencies) @ turned(key, frequencies).transpose(-1, -2) * SCALING
    return scores.masked_fill(~mask, -math.inf).softmax(-1) @ value


def table(pairs: int) -> RopeTable:
    return RopeTable(1e4 ** (-np.arange(pairs) / pairs))


def attended(states: States, group: int, pairs: int = 2) -> torch.Tensor:
    return shifted_sparse(ShiftedSparse(group), AttentionInputs(*states, table(pairs), 0, SCALING))


@given(
    num_groups=st.integers(1, 6),
    half=st.integers(1, 12),
    kv_heads=st.integers(1, 5),
    shared=st.integers(1, 5),
    pairs=st.sampled_from([2, 3]),
)
def test_the_kernel_equals_dense_attention_under_the_masks_of_its_heads(
    num_groups, half, kv_heads, shared, pairs
):
    heads, length = kv_heads * shared, num_groups * 2 * half
    assume(heads > 1)
    states = random_states(length, heads=heads, kv_heads=kv_heads, dim=6)
    expected = dense(states, table(pairs).inv_freq, visible(length, 2 * half, heads))
    output = attended(states, 2 * half, pairs)
    torch.testing.assert_close(output, expected, rtol=1e-10, atol=1e-10)


# Whole heads and shared ones, an odd number, and a shared head across the middle.
@pytest.mark.parametrize(
    ("heads", "kv_heads", "group"), [(4, 2, 8), (3, 3, 32), (3, 1, 8), (12, 4, 32)]
)
def test_the_kernel_has_the_gradients_of_dense_attention(heads, kv_heads, group):
    ours, theirs = (
        [part.requires_grad_() for part in random_states(32, heads=heads, kv_heads=kv_heads, dim=6)]
        for _ in range(2)
    )
    attended((ours[0], ours[1], ours[2]), group).square().sum().backward()
    expected = dense(
        (theirs[0], theirs[1], theirs[2]), table(2).inv_freq, visible(32, group, heads)
    )
    expected.square().sum().backward()
    for our, their in zip(ours, theirs, strict=True):
        torch.testing.assert_close(our.grad, their.grad, rtol=1e-9, atol=1e-9)


def rolled(states: States, group: int, inv_freq: np.ndarray) -> torch.Tensor:
    """The other published form: shifted heads roll the row by half a block, and back."""
    length, heads = states[0].shape[2], states[0].shape[1]
    shift, frequencies = group // 2, torch.from_numpy(inv_freq)
    query, key = (turned(part, frequencies) for part in states[:2])
    mask = blocks(length, group, shifted=False)
    outputs = []
    for head in range(heads):
        parts = [part[:, head] for part in (query, key, states[2])]
        if head >= heads // 2:
            parts = [part.roll(-shift, dims=1) for part in parts]
        scores = (parts[0] @ parts[1].transpose(-1, -2) * SCALING).masked_fill(~mask, -math.inf)
        output = scores.softmax(-1) @ parts[2]
        outputs.append(output.roll(shift, dims=1) if head >= heads // 2 else output)
    return torch.stack(outputs, dim=1)


def test_rolling_the_row_differs_in_the_first_half_block_of_shifted_heads_only():
    states, group = random_states(32, kv_heads=4, dim=6), 8
    output, other = attended(states, group), rolled(states, group, table(2).inv_freq)
    torch.testing.assert_close(other[:, :2], output[:, :2], rtol=1e-10, atol=1e-10)
    later = slice(group // 2, None)
    torch.testing.assert_close(other[:, 2:, later], output[:, 2:, later], rtol=1e-10, atol=1e-10)
    assert ((other - output)[:, 2:, : group // 2].abs().amax(-1) > 1e-3).all()


def method(name: str = "longlora", **parameters: Any) -> Method:
    return METHODS.parse({"name": name, **parameters}, "test")


@torch.no_grad()
def extended_logits(model: Any, base: LanguageModel, chosen: Method) -> torch.Tensor:
    return logits(extend(model, base, chosen, target=64), tokens(64))


def test_as_many_parameters_of_phi_2_are_trained_as_counted_by_hand():
    # Factors 32 x 4 x 8 x (2560 + 2560), embedding 51200 x 2560, norms 33 x (2560 + 2560).
    expected = 5_242_880 + 131_072_000 + 168_960
    base: Any = MODELS.load("phi2")()
    with init_empty_weights(include_buffers=False):
        model = AutoModelForCausalLM.from_config(base.config(), dtype=torch.float32)
    add_lora(model, method().lora(), seed=0)
    assert {parameter.device.type for parameter in model.parameters()} == {"meta"}
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    assert sum(parameter.numel() for parameter in trained) == expected


@over_bases
def test_merged_weights_are_a_stock_model_that_computes_the_same(base):
    model, chosen = stock(base), method(rank=3, alpha=5.0)
    add_lora(model, chosen.lora(), seed=1)
    torch.manual_seed(5)
    for name, parameter in model.named_parameters():
        if name.endswith("lora_B"):
            torch.nn.init.normal_(parameter, std=0.1)
    before = {name: tensor.clone() for name, tensor in model.named_parameters()}
    plain = merged(dict(model.named_parameters()), chosen.lora())
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.named_parameters())
    other = stock(base)
    assert plain.keys() == dict(other.named_parameters()).keys()
    before_training = extended_logits(stock(base), base, method("pi"))
    other.load_state_dict(plain)
    expected = extended_logits(model, base, method())
    assert (expected - before_training).abs().max() > 1e-3
    output = extended_logits(other, base, method("pi"))
    torch.testing.assert_close(output, expected, rtol=1e-9, atol=1e-9)


@pytest.fixture(scope="module")
def saved_base(tmp_path_factory) -> Path:
    return save_base(tmp_path_factory.mktemp("base") / "model")


@pytest.fixture
def make_job(rows, saved_base, tmp_path) -> Callable[..., TrainingJob]:
    make = job_maker(rows, tmp_path)

    fields: dict[str, Any] = {
        "method": method().identity(),
        "target_context": TARGET,
        "from_scratch": False,
        "base_folder": saved_base,
    }
    return lambda training=None, **changes: make(training, **(fields | changes))


def start_of(saved_base: Path) -> dict[str, torch.Tensor]:
    return dict(BASE.load(saved_base, torch.float32).state_dict())


def drawn_factors(seed: int) -> dict[str, torch.Tensor]:
    """A uniform within 1 / sqrt(96), layer by layer in the order of a forward pass; B zero."""
    generator, factors = torch.Generator().manual_seed(seed), {}
    for layer in range(2):
        for projection in UPDATED[:4]:
            name = f"model.layers.{layer}.self_attn.{projection}.weight"
            down = torch.empty(8, 96).uniform_(-(96**-0.5), 96**-0.5, generator=generator)
            factors[f"A {name}"] = down.requires_grad_()
            factors[f"B {name}"] = torch.zeros(96, 8, requires_grad=True)
    return factors


def test_a_run_equals_a_plain_torch_loop_over_stock_transformers(make_job, saved_base):
    job = make_job(micro_batch_tokens=3 * ROW_LENGTH, gradient_checkpointing=True)
    run(job, silent)

    config = BASE.config()
    config.rope_parameters = {"rope_type": "linear", "rope_theta": 1e4, "factor": TARGET / 128}
    model: Any = LlamaForCausalLM._from_config(config, attn_implementation="eager")
    start = start_of(saved_base)
    mask = torch.zeros(1, 3, ROW_LENGTH, ROW_LENGTH)
    mask = mask.masked_fill(~visible(ROW_LENGTH, ROW_LENGTH // 4, 3), -math.inf)
    factors = drawn_factors(job.seed)
    whole = {
        name: tensor.clone().requires_grad_()
        for name, tensor in start.items()
        if ("embed" in name or "norm" in name) and name != "lm_head.weight"
    }
    optimizer = torch.optim.AdamW(
        [*whole.values(), *factors.values()], betas=(0.9, 0.95), weight_decay=0.1
    )

    def current() -> dict[str, torch.Tensor]:
        updated = {
            name: tensor + 2.0 * factors[f"B {name}"] @ factors[f"A {name}"]
            for name, tensor in start.items()
            if f"A {name}" in factors
        }
        head = {"lm_head.weight": whole["model.embed_tokens.weight"]}
        return start | updated | whole | head

    packed, expected = PackedRows.open(job.rows), []
    for step in range(job.num_steps):
        chosen = rows_of_step(job.seed, step, ROWS_PER_STEP, len(packed))
        ids, loss_weights = map(torch.from_numpy, packed.read(chosen))
        given = {"input_ids": ids, "attention_mask": mask.expand(len(ids), -1, -1, -1)}
        output = torch.func.functional_call(model, current(), kwargs=given)
        nll = cross_entropy(
            output.logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten(), reduction="none"
        )
        factor = loss_weights[:, 1:].flatten()
        loss = (nll * factor).sum() / factor.sum()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(
            [*whole.values(), *factors.values()], job.training.gradient_clip
        )
        optimizer.param_groups[0]["lr"] = learning_rate(job.training, step, job.num_steps)
        optimizer.step()
        expected.append(loss.item())

    assert losses(job) == pytest.approx(expected, abs=1e-5)
    wanted = current()
    for name, tensor in weights(job).items():
        torch.testing.assert_close(tensor, wanted[name].detach(), rtol=1e-4, atol=1e-4)


def test_the_average_is_one_of_factors(make_job, saved_base):
    plain, averaged = make_job(num_steps=1), make_job({"ema_decay": 0.75}, num_steps=1)
    plain.resume.mkdir()
    trainer = Trainer(plain, torch.device("cpu"))
    trainer.train(silent)
    run(averaged, silent)
    start, drawn = start_of(saved_base), drawn_factors(plain.seed)
    for name, tensor in weights(averaged).items():
        layer = name.removesuffix(".weight")
        expected = start[name]
        if f"A {name}" in drawn:
            down, up = (trainer.parameters[f"{layer}.lora_{side}"].detach() for side in "AB")
            mean = 0.75 * drawn[f"A {name}"].detach() + 0.25 * down
            expected = expected + 2.0 * 0.25 * up @ mean
        elif name in trainer.parameters:
            expected = 0.75 * expected + 0.25 * trainer.parameters[name].detach()
        torch.testing.assert_close(tensor, expected, rtol=1e-6, atol=1e-7)


def test_updates_of_layers_that_a_model_lacks_are_refused():
    with pytest.raises(SpecError, match="no linear layer called query_key_value"):
        add_lora(stock(BASES[0]), LoRA(8, 16, ("query_key_value",), ()), seed=0)
