"""The parts of a training run, put together on the device: rows, base model, loss model.

The model is placed first, whole or as a share, and then put into the hands of the method, because
the attention kernel depends on the device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from lce_core.devices import resolve_dtype
from lce_core.errors import DataError
from lce_core.extension import extend
from lce_core.loss_model import LossModel
from lce_core.methods import METHODS
from lce_core.models import MODELS, BaseModel
from lce_core.packing import PackedRows
from lce_core.sharding import build_on_main, shard
from lce_core.spec import add_plugin_folders

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from lce_core.training import TrainingJob


def open_rows(job: TrainingJob) -> PackedRows:
    """The job's rows.

    Raises:
      DataError: there are none, or they have another length.
    """
    rows = PackedRows.open(job.rows)
    if rows.row_length != job.row_length or not len(rows):
        raise DataError(
            f"{job.rows}: {len(rows)} rows of {rows.row_length} tokens: training needs at least one"
            f" row of {job.row_length}. Pack the rows again for this length."
        )
    return rows


def plugin_of(job: TrainingJob) -> BaseModel:
    """The job's base model plug-in."""
    add_plugin_folders(job.plugin_folders)
    return MODELS.from_identity(job.base_model)


def build(
    job: TrainingJob, base: BaseModel, device: torch.device
) -> tuple[PreTrainedModel, LossModel, str]:
    """The model to train, on `device`, its loss model, and the name of its attention kernel."""

    def start() -> PreTrainedModel:
        if job.from_scratch:
            return base.initialise(job.seed)
        return base.load(job.base_folder, torch.float32)

    if job.is_sharded(device):
        model = build_on_main(start, device)
        module = LossModel(model, job.training.precision)
        shard(module, model, device)
    else:
        model = start().to(device)  # type: ignore[arg-type]
        module = LossModel(model, job.training.precision)
    kernel = _extend(job, base, model)
    if job.gradient_checkpointing:
        # The second name is what older 5.x releases of transformers have.
        names = ("activation_checkpointing_enable", "gradient_checkpointing_enable")
        enable = next(getattr(model, name) for name in names if hasattr(model, name))
        enable({"use_reentrant": False})
    module.train()
    return model, module, kernel


def _extend(job: TrainingJob, base: BaseModel, model: PreTrainedModel) -> str:
    """Puts the job's method on the model, if it has one; the name of the attention kernel."""
    if job.method is None:
        return str(model.config._attn_implementation)
    extended = extend(
        model,
        base,
        METHODS.from_identity(job.method),
        target=job.target_context,
        kernel=job.training.kernel,
        compute_dtype=resolve_dtype(job.training.precision),
    )
    extended.begin_request(job.row_length)
    return extended.kernel
