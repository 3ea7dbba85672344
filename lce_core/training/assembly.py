"""The parts of a training run, put together on the device: rows, base model, loss model.

The method is put on the model before it is placed on the device, whole or as a share, so that
parameters which the method adds are trained and shared like all others. What is not to be trained
requires no gradient: then it is neither optimised, averaged nor written to resume points.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from lce_core.data.packing import PackedRows
from lce_core.devices import resolve_dtype
from lce_core.errors import DataError
from lce_core.extension.extended_model import ExtendedModel
from lce_core.extension.extending import extend
from lce_core.extension.insertion import reserve_token
from lce_core.methods import METHODS, Method
from lce_core.models import MODELS, LanguageModel
from lce_core.study.plugin_folders import add_plugin_folders
from lce_core.training.lora import add_lora
from lce_core.training.loss_model import LossModel
from lce_core.training.recomputation import enable
from lce_core.training.sharding import build_on_main, shard

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from lce_core.methods import LoRA
    from lce_core.training.job import TrainingJob


def open_rows(job: TrainingJob) -> PackedRows:
    """The job's rows.

    Raises:
      DataError: there are none, or they have another length.
    """
    rows = PackedRows.open(job.rows)
    if rows.row_length != job.row_length or not len(rows):
        raise DataError(
            job.rows,
            f"{len(rows)} rows of {rows.row_length} tokens",
            f"at least one row of {job.row_length} tokens",
            "pack the rows again for this length",
        )
    return rows


def plugin_of(job: TrainingJob) -> LanguageModel:
    """The job's base model plug-in."""
    add_plugin_folders(job.plugin_folders)
    return MODELS.from_identity(job.base_model)


@dataclass(frozen=True)
class Parts:
    """What is trained: the model, its loss, and the method on it, if any."""

    model: PreTrainedModel
    module: LossModel
    extended: ExtendedModel | None

    @property
    def kernel(self) -> str:
        """Name of the attention kernel."""
        return (
            self.extended.kernel if self.extended else str(self.model.config._attn_implementation)
        )

    @property
    def lora(self) -> LoRA | None:
        """Which weights are trained through LoRA; None for all as they are."""
        return self.extended.method.lora() if self.extended else None


def build(job: TrainingJob, base: LanguageModel, device: torch.device) -> Parts:
    """The model to train, on `device`, or this process's share of it."""
    method = None if job.method is None else METHODS.from_identity(job.method)

    def start() -> PreTrainedModel:
        if job.from_scratch:
            model = base.initialise(job.seed)
            # Not model.to(): it would round rotary frequencies, which are buffers.
            for parameter in model.parameters():
                parameter.data = parameter.data.to(job.state_dtype)
        else:
            model = base.load(job.base_folder, job.state_dtype)
        if method and method.insertion(base.geometry):
            reserve_token(model)  # Here, where other processes take the model's layout from.
        return model

    sharded = job.is_sharded(device)
    model = build_on_main(start, device, job.state_dtype) if sharded else start()
    extended = None if method is None else _extend(job, base, method, model, device)
    # Weights in bf16 need no autocast.
    precise = job.state_dtype == torch.float32
    module = LossModel(model, job.training.precision if precise else "fp32", job.kept)
    if sharded:
        shard(module, model, device)
    else:
        module.to(device)
    enable(model, job.kept)
    module.train()
    return Parts(model, module, extended)


def _extend(
    job: TrainingJob,
    base: LanguageModel,
    method: Method,
    model: PreTrainedModel,
    device: torch.device,
) -> ExtendedModel:
    """Puts the job's method on the model."""
    extended = extend(
        model,
        base,
        method,
        target=job.target_context,
        kernel=job.training.kernel,
        compute_dtype=resolve_dtype(job.training.precision),
        device=device,
        training=True,
        seed=job.seed,
        positions=job.train_positions,
    )
    extended.begin_request(sequence_length(job, extended))
    if lora := method.lora():
        add_lora(model, lora, job.seed)
    return extended


def sequence_length(job: TrainingJob, extended: ExtendedModel | None) -> int:
    """Tokens of text that attend to each other in training: a row, or a piece of it.

    Raises:
      SpecError: the pieces that the method wants do not divide the rows.
    """
    if extended is None or extended.inserter is None:
        return job.row_length
    return extended.inserter.piece_of(job.row_length)
