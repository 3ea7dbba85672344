"""Build what the trainer needs: training rows, the model with its method, and the loss.

With LoRA a layer computes W x + alpha / rank * B (A x) with W frozen. B starts at zero, so training
starts from the unchanged model. An EMA averages A and B separately.

The peft package is not used: once installed, transformers' Auto classes follow an
adapter_config.json to weights that no fingerprint covers. It merges whole modules, whereas a
sharded run has to merge gathered tensors, and under autocast it copies every layer's input to fp32.

Source of LoRA: Hu et al. 2021, arXiv:2106.09685, equation 3 and section 4.1; A as in their code.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from lce_core.devices import autocast, resolve_dtype
from lce_core.errors import SpecError
from lce_core.evaluation.cross_entropy import Head, linear_cross_entropy
from lce_core.extension.extended_model import ExtendedModel
from lce_core.extension.extending import extend, use_kernel
from lce_core.extension.insertion import reserve_token
from lce_core.methods import METHODS, LoRA
from lce_core.models import MODELS, LanguageModel
from lce_core.study.plugin_folders import add_plugin_folders
from lce_core.training.recomputation import enable, storage
from lce_core.training.sharding import build_on_main, decoder_layers, shard

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from lce_core.training.job import TrainingJob


_DOWN, _UP = ".lora_A", ".lora_B"


def plugin_of(job: TrainingJob) -> LanguageModel:
    """Return the base model's plug-in, after importing the user's plug-in folders."""
    add_plugin_folders(job.plugin_folders)
    return MODELS.from_identity(job.base_model)


class LossModel(nn.Module):
    """A language model whose forward pass returns the loss, for wrappers that act on `forward`."""

    def __init__(self, model: PreTrainedModel, precision: str, kept: str = "none") -> None:
        super().__init__()
        self.model, self.precision, self.kept = model, precision, kept

    def forward(self, tokens: Tensor, weights: Tensor) -> Tensor:
        """Return the sum of weights[r, i] * nll(tokens[r, i] | tokens[r, :i]) over r and i >= 1."""
        backbone = self.model.base_model
        with autocast(tokens.device, self.precision):
            with storage(self.kept, tokens.device):
                hidden: Tensor = backbone(input_ids=tokens, use_cache=False).last_hidden_state
            return linear_cross_entropy(
                hidden[:, :-1].flatten(0, 1),
                Head.of(self.model),
                tokens[:, 1:].flatten(),
                weights[:, 1:].flatten(),
            )


@dataclass(frozen=True)
class Parts:
    """The model to train, its loss module and the method applied to it, if any."""

    model: PreTrainedModel
    module: LossModel
    extended: ExtendedModel | None
    layers: Sequence[nn.Module]
    kernel: str

    @property
    def lora(self) -> LoRA | None:
        return self.extended.method.lora() if self.extended else None


def build(job: TrainingJob, base: LanguageModel, device: torch.device) -> Parts:
    method = None if job.method is None else METHODS.from_identity(job.method)

    def start() -> PreTrainedModel:
        if job.from_scratch:
            model = base.initialise(job.seed)
            # Assign .data instead of calling model.to(): to() would also cast the buffers, and
            # rotary frequencies lose precision in bf16.
            for parameter in model.parameters():
                parameter.data = parameter.data.to(job.state_dtype)
        else:
            model = base.load(job.base_folder, job.state_dtype)
        if method and method.insertion(base.geometry):
            # Add the token here, on the main process: the other processes copy this model's layout.
            reserve_token(model)
        return model

    sharded = job.is_sharded(device)
    model = build_on_main(start, device, job.state_dtype) if sharded else start()
    # Before the model moves or is sharded, so that the method's own parameters are trained as well.
    extended, compute = None, resolve_dtype(job.training.precision)
    if method is None:
        kernel = use_kernel(model, job.training.kernel, device, compute)
    else:
        extended = extend(
            model,
            base,
            method,
            target=job.target_context,
            kernel=job.training.kernel,
            compute_dtype=compute,
            device=device,
            training=True,
            seed=job.seed,
            positions=job.train_positions,
        )
        kernel = extended.kernel
        extended.begin_request(sequence_length(job, extended))
        if lora := method.lora():
            add_lora(model, lora, job.seed)
    # Autocast only helps fp32 weights; with bf16 weights all products are in bf16 already.
    precise = job.state_dtype == torch.float32 and not job.casts_weights
    # List the layers before they are sharded, which changes their class.
    layers = decoder_layers(model)
    module = LossModel(model, job.training.precision if precise else "fp32", job.kept)
    if sharded:
        shard(module, model, device, torch.bfloat16 if job.casts_weights else None)
    else:
        module.to(device)
    enable(model, job.kept)
    module.train()
    return Parts(model, module, extended, layers, kernel)


def sequence_length(job: TrainingJob, extended: ExtendedModel | None) -> int:
    """Return how many tokens attend to each other: a row, or a piece with inserted tokens."""
    if extended is None or extended.inserter is None:
        return job.row_length
    return extended.inserter.piece_of(job.row_length)


class LoRALinear(nn.Module):
    """A linear layer with a frozen weight and a trained low-rank update; A is drawn on the CPU."""

    def __init__(self, layer: nn.Linear, lora: LoRA, generator: torch.Generator) -> None:
        super().__init__()
        self.weight, self.bias = layer.weight, layer.bias
        self.scale = lora.alpha / lora.rank
        drawn = torch.empty(lora.rank, layer.in_features)
        nn.init.kaiming_uniform_(drawn, a=math.sqrt(5), generator=generator)
        self.lora_A = nn.Parameter(drawn.to(layer.weight))
        self.lora_B = nn.Parameter(layer.weight.new_zeros(layer.out_features, lora.rank))

    def forward(self, states: Tensor) -> Tensor:
        update = linear(linear(states, self.lora_A) * self.scale, self.lora_B)
        return linear(states, self.weight, self.bias) + update


def add_lora(model: nn.Module, lora: LoRA, seed: int) -> None:
    """Add low-rank updates in place, and freeze all weights but those named in `lora.whole`."""
    generator = torch.Generator().manual_seed(seed)
    found = [
        (name, layer)
        for name, layer in model.named_modules()
        if isinstance(layer, nn.Linear) and name.rpartition(".")[2] in lora.targets
    ]
    if not found:
        raise SpecError(
            type(model).__name__,
            f"no linear layer called {' or '.join(lora.targets)}",
            "at least one linear layer with one of these names, to which LoRA adds its update",
            "name linear layers of this model in the targets of the method's lora()",
        )
    for name, layer in found:
        model.set_submodule(name, LoRALinear(layer, lora, generator))
    for name, parameter in model.named_parameters():
        update = name.endswith((_DOWN, _UP))
        parameter.requires_grad_(update or any(part in name for part in lora.whole))


@torch.no_grad()
def merged(weights: Mapping[str, Tensor], lora: LoRA) -> dict[str, Tensor]:
    """Return the stock model's weights: W + alpha / rank * B A for each layer with an update."""
    plain = {}
    for name, tensor in weights.items():
        layer = name.removesuffix(".weight")
        if name.endswith((_DOWN, _UP)):
            continue
        if (down := weights.get(layer + _DOWN)) is not None:
            up = weights[layer + _UP]
            tensor = torch.addmm(tensor, up, down, alpha=lora.alpha / lora.rank)
        plain[name] = tensor
    return plain
