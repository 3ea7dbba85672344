"""Packed rows with document masks against their documents, each passed alone through the same model
without masks, in float64; the kernels against a dense softmax under a block-diagonal mask."""

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from torch.nn.attention import varlen
from transformers import LlamaForCausalLM

from lce_core.attention import causal
from lce_core.contracts.tiny_models import BASES, TARGET, stock, tokens
from lce_core.corpora import Corpus, Document, Split
from lce_core.extension.extended_model import ExtendedModel
from lce_core.extension.extending import extend
from lce_core.methods import METHODS
from lce_core.models import LanguageModel
from lce_core.training.assembly import LossModel
from tests.support.architectures import (
    OWN,
    SLIDING,
    gemma2,
    gpt_oss,
    hub_model,
    in_float64,
    random_model,
    save,
    sliding,
)
from tests.support.extended_models import method, over_bases
from tests.support.folder_models import saved
from tests.support.training_jobs import job_maker, log, packed_rows, run_alone, save_base

BOUNDS = torch.tensor([0, 9, 10, 47, 64, 70, 128], dtype=torch.int32)
"""Documents of two rows of 64 tokens, one of them a single token."""
POSITIONS = np.concatenate([np.arange(n) for n in np.diff(BOUNDS)]).reshape(2, TARGET)
ROWS = tokens(TARGET)


def extended(
    base: LanguageModel, name: str, parameters: Mapping[str, Any] | None = None, **how: Any
) -> ExtendedModel:
    chosen = method(name, **(parameters or {}))
    model = extend(stock(base).train(), base, chosen, target=TARGET, training=True, **how)
    model.begin_request(TARGET)
    return model


def loss(
    model: ExtendedModel,
    ids: torch.Tensor,
    bounds: torch.Tensor | None = None,
    positions: Any = None,
) -> torch.Tensor:
    model.begin_rows(np.arange(len(ids), dtype=np.uint64), bounds, positions)
    weights = torch.ones(ids.shape, dtype=torch.float64)
    if bounds is not None:
        weights.view(-1)[bounds[:-1].long()] = 0
    return LossModel(model.model, "fp32")(ids, weights)


def with_gradients(model: ExtendedModel, total: torch.Tensor) -> list[torch.Tensor]:
    parameters = [one for one in model.model.parameters() if one.requires_grad]
    return [total.detach(), *torch.autograd.grad(total, parameters, allow_unused=True)]


def masked(model: ExtendedModel, *, restart: bool) -> torch.Tensor:
    return loss(model, ROWS, BOUNDS, POSITIONS if restart else None)


def alone(model: ExtendedModel) -> torch.Tensor:
    """The sum of the losses of the documents, each of which is a row of its own."""
    documents = [ROWS.view(1, -1)[:, a:b] for a, b in pairwise(BOUNDS.tolist()) if b > a + 1]
    return torch.stack([loss(model, document) for document in documents]).sum()


@over_bases
@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("yarn", {}),
        ("yarn", {"logit_scale": "log_length"}),
        ("dynamic_ntk_aware", {}),
        ("harpe", {}),
        ("nope_hybrid", {}),
    ],
)
def test_restarted_documents_train_like_rows_of_their_own(base, name, parameters):
    model = extended(base, name, parameters)
    for found, expected in zip(
        with_gradients(model, masked(model, restart=True)),
        with_gradients(model, alone(model)),
        strict=True,
    ):
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("kind", [*OWN, *SLIDING, "gpt_oss", "gemma2"])
def test_every_architecture_passes_documents_to_its_attention(kind, tmp_path):
    makers = {
        "gpt_oss": gpt_oss,
        "gemma2": gemma2,
        **dict.fromkeys(SLIDING, partial(sliding, kind)),
    }
    drawn = makers[kind]() if kind in makers else None
    folder = saved(drawn, tmp_path) if drawn else save(kind, tmp_path)
    own = in_float64(drawn or random_model(kind))
    model = extend(own, hub_model(folder), method("yarn"), target=TARGET, training=True)
    model.begin_request(TARGET)
    torch.testing.assert_close(masked(model, restart=True), alone(model), rtol=1e-10, atol=0)


@pytest.mark.parametrize(
    ("positions", "equal"), [("exact", True), ("bf16_angles", False), ("pose", False)]
)
def test_positions_may_run_on_unless_they_are_rounded_or_skip(positions, equal):
    """RoPE is relative, so positions that run on change nothing; rounding depends on positions."""
    model = extended(BASES[0], "yarn", positions=positions)
    if positions == "pose":
        model.begin_request(TARGET // 2)
        ids, bounds = ROWS.reshape(4, -1), torch.arange(0, 129, 16, dtype=torch.int32)
        found = loss(model, ids, bounds)
        expected = loss(model, ids, bounds, np.tile(np.arange(16), (4, 2)))
    else:
        found, expected = masked(model, restart=False), masked(model, restart=True)
    assert torch.allclose(found, expected, rtol=1e-10, atol=0) is equal


class Notes(Corpus):
    """Documents shorter and longer than a row."""

    def domains(self) -> tuple[str, ...]:
        return ("notes",)

    def documents(self, split: Split, folders: Mapping[str, Path]) -> Iterator[Document]:
        for number in range(60):
            yield Document(f"{split}-{number}", "notes", f"{split} " * (1 + number * 7 % 20))


@pytest.mark.parametrize(
    ("masks", "kept"), [("run_on", "none"), ("restart", "attention"), ("restart", "full")]
)
def test_a_training_step_has_the_loss_and_gradient_of_the_documents_alone(masks, kept, tmp_path):
    """The reference reads the files of the rows and passes each document through stock Llama."""
    rows, base = tmp_path / "rows", tmp_path / "base"
    rows.mkdir()
    packed_rows(rows, Notes(), packing="best_fit")
    make = job_maker(rows, tmp_path)
    job = make(
        {"document_masks": masks, "tokens_per_step": 20 * 64},
        method=METHODS.load("none")().identity(),
        base_folder=save_base(base),
        from_scratch=False,
        num_steps=1,
        micro_batch_tokens=3 * 64,
        gradient_checkpointing=kept,
    )
    run_alone(job)
    model: Any = LlamaForCausalLM.from_pretrained(base, dtype=torch.float32)
    ids, weights = (
        torch.from_numpy(np.fromfile(rows / name, dtype=dtype).astype(np.int64))
        for name, dtype in (("rows.bin", np.uint16), ("weights.bin", np.uint8))
    )
    total, count = torch.zeros(()), 0
    order = pq.read_table(rows / "order.parquet").to_pydict()
    for start, length in zip(order["start"], order["tokens"], strict=True):
        own = slice(start + 1, start + length)
        logits = model(ids[None, start : start + length]).logits[0, :-1]
        losses = torch.nn.functional.cross_entropy(logits, ids[own], reduction="none")
        total = total + (losses * weights[own]).sum()
        count += int(weights[own].sum())
    mean = total / count
    mean.backward()
    norm = torch.cat([one.grad.flatten() for one in model.parameters()]).norm()
    [entry] = log(job)
    assert entry["loss"] == pytest.approx(mean.item(), rel=1e-5)
    assert entry["grad_norm"] == pytest.approx(norm.item(), rel=1e-4)


def dense(states: Any, bounds: torch.Tensor, scaling: float) -> torch.Tensor:
    """Softmax over (tokens, heads, head_dim) of joined rows under one block-diagonal mask."""
    query, key, value = (one.transpose(0, 1) for one in states)
    key, value = (one.repeat_interleave(len(query) // len(key), 0) for one in (key, value))
    places = torch.arange(query.shape[1])
    document = torch.bucketize(places, bounds, right=True)
    seen = (document[:, None] == document) & (places[:, None] >= places)
    scores = (query @ key.mT * scaling).masked_fill(~seen, -torch.inf)
    return (scores.softmax(-1) @ value).transpose(0, 1)


def varlen_stand_in(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *rest: Any, **given: Any
) -> torch.Tensor:
    bounds, of_keys, longest, _ = rest
    assert bounds is of_keys
    assert given["window_size"] == (-1, 0)
    assert longest >= bounds.diff().max()
    return dense((query, key, value), bounds, given["scale"])


@pytest.mark.parametrize("kernel", ["torch_flash_cpu", "torch_flash"])
def test_kernels_equal_a_softmax_under_a_block_diagonal_mask(kernel, monkeypatch):
    monkeypatch.setattr(causal, "backend", lambda *_: kernel)
    monkeypatch.setattr(varlen, "varlen_attn", varlen_stand_in)
    torch.manual_seed(3)
    states = [torch.randn(2, heads, 64, 8, dtype=torch.float64) for heads in (6, 2, 2)]
    found = causal.attend_documents(states, 0.3, BOUNDS)
    joined = [one.transpose(1, 2).flatten(0, 1) for one in states]
    torch.testing.assert_close(found.transpose(1, 2).flatten(0, 1), dense(joined, BOUNDS, 0.3))


@pytest.mark.gpu
def test_a_gpu_masks_documents_within_bf16():
    torch.manual_seed(3)
    states = [
        torch.randn(2, heads, 512, 64, dtype=torch.bfloat16, device="cuda", requires_grad=True)
        for heads in (8, 2, 2)
    ]
    bounds = torch.tensor([0, 7, 300, 512, 1000, 1024], dtype=torch.int32)
    found = causal.attend_documents(states, 0.1, bounds.cuda())
    exact = [one.detach().double().cpu().requires_grad_() for one in states]
    joined = [one.transpose(1, 2).flatten(0, 1) for one in exact]
    expected = dense(joined, bounds, 0.1).unflatten(0, (2, 512)).transpose(1, 2)
    pairs = zip(
        (found, *torch.autograd.grad(found.sum(), states)),
        (expected, *torch.autograd.grad(expected.sum(), exact)),
        strict=True,
    )
    for one, other in pairs:
        torch.testing.assert_close(one.double().cpu(), other, rtol=3e-2, atol=3e-2)
