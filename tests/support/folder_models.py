"""Models in folders, extended as a worker does it, and their layers with dense attention."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from transformers import AttentionInterface, AttentionMaskInterface, AutoModelForCausalLM

from lce_core.data.packing import pack_rows
from lce_core.export.folder import export
from lce_core.export.stock_form import Subject
from lce_core.extension.extending import extend
from lce_core.methods import METHODS, Method
from lce_core.models import LanguageModel
from lce_core.models.toy_llama import ToyLlama, byte_tokenizer
from lce_core.recipe import Upsampling
from lce_core.rope import RopeTable
from lce_core.rope.architectures import ARCHITECTURES
from lce_core.training.run import run
from tests.support.architectures import VOCABULARY, hub_model, in_float64, in_pieces
from tests.support.oracles.dense_attention import dense, grouped_distance, lambda_distance
from tests.support.training_jobs import Words, job_maker, silent

TARGET = 64
Distance = Callable[[int, int], Any]


def method(name: str, **parameters: Any) -> Method:
    """The method with these parameters; without any, with its defaults."""
    return METHODS.parse({"name": name, **parameters}, "test")


over_schemes = pytest.mark.parametrize(
    ("chosen", "distance"),
    [
        (method("self_extend", window=8, group=4), grouped_distance(8, 4)),
        (method("lm_infinite", window=8, num_global=3), lambda_distance(8, 3)),
    ],
    ids=["self_extend", "lm_infinite"],
)


def tokens(length: int, batch: int = 2) -> torch.Tensor:
    generator = torch.Generator().manual_seed(length)
    return torch.randint(VOCABULARY, (batch, length), generator=generator)


def saved(model: Any, folder: Path) -> Path:
    model.save_pretrained(folder)
    byte_tokenizer(ToyLlama.keys).save_pretrained(folder)
    return folder


def logits(
    folder: Path,
    chosen: Method,
    ids: torch.Tensor,
    cuts: tuple[int, ...] | None = None,
    *,
    base: LanguageModel | None = None,
    dtype: torch.dtype = torch.float64,
    **how: Any,
) -> torch.Tensor:
    """Logits of the folder's model with the method, without tokens that the method added."""
    base = base or hub_model(folder)
    model: Any = base.load(folder, dtype)
    if dtype == torch.float64:
        in_float64(model)
    return in_pieces(extend(model, base, chosen, target=TARGET, **how), ids, cuts)[..., :VOCABULARY]


def agree(found: torch.Tensor, expected: torch.Tensor) -> None:
    """Assert that logits are equal but for the float32 cosines of stock models."""
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def stock_logits(folder: Path, ids: torch.Tensor) -> torch.Tensor:
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64)
    return in_float64(model)(ids).logits[..., :VOCABULARY]


def exported(folder: Path, chosen: Method, out: Path) -> Path:
    """Export the folder's model with the method."""
    export(Subject("study", "variant", hub_model(folder), chosen, TARGET, folder), out)
    return out


def dense_logits(
    folder: Path, ids: torch.Tensor, rule: Callable[[Any], tuple[RopeTable, Distance]]
) -> torch.Tensor:
    """Logits of transformers' layers, where `rule` gives frequencies and distances of a layer."""

    def attend(
        module: Any, query: Any, key: Any, value: Any, _: Any, *, scaling: float, **given: Any
    ) -> Any:
        table, distance = rule(module)
        if ARCHITECTURES[module.config.model_type].adjacent:
            width = 2 * table.inv_freq.shape[-1]
            order = [*range(0, width, 2), *range(1, width, 2), *range(width, query.shape[-1])]
            query, key = query[..., order], key[..., order]
        scaling *= table.attention_factor**2
        sinks = given.get("s_aux")
        found = dense(query, key, value, table.inv_freq, distance, scaling, sinks)
        return found.transpose(1, 2).contiguous(), None

    AttentionInterface.register("dense_oracle", attend)
    AttentionMaskInterface.register("dense_oracle", lambda **_: None)
    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64)
    in_float64(model)
    model.set_attn_implementation("dense_oracle")
    modules = sys.modules[type(model).__module__]
    with patch.object(modules, "apply_rotary_pos_emb", lambda query, key, *_: (query, key)):
        return model(ids).logits


def causal(query: int, key: int) -> int | None:
    return query - key if key <= query else None


def trained(folder: Path, chosen: Method, out: Path, **how: Any) -> Path:
    """The checkpoint of two training steps with the method from the folder's weights."""
    base, rows = hub_model(folder), out / "rows"
    rows.mkdir(parents=True)
    pack_rows(
        Words(), base, base.tokenizer(folder), row_length=64, num_rows=8, upsampling=Upsampling(),
        seed=0, folders={}, out=rows, report=lambda done: None,
    )  # fmt: skip
    job = job_maker(rows, out)(
        {"tokens_per_step": 128, "learning_rate": 1e-2, "warmup_steps": 0},
        base_model=base.identity(), from_scratch=False, base_folder=folder, num_steps=2,
        method=chosen.identity(), target_context=TARGET, **how,
    )  # fmt: skip
    with torch.enable_grad():
        run(job, silent)
    checkpoint: Path = job.out / "model"
    base.check_folder(checkpoint)  # type: ignore[attr-defined]
    assert len(base.tokenizer(checkpoint)) == len(base.tokenizer(folder))
    return checkpoint
