"""Count the GPU operations and waits of every method without a GPU.

The forward pass of Llama-2-7B runs on torch's meta device, whose tensors have shapes but no values,
with the code paths of a GPU from compute capability 8.0. Every operation that would start work on a
GPU counts as one launch: views and allocations do not count. Reading a value from the device counts
as a wait. Counts per layer are the difference between a model of two layers and a model of one.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np
import torch
from gpu_common import random_llama
from measuring import Row, alike, markdown, page_tables
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import AutoModelForCausalLM

from lce_core.attention import causal, flash, registered
from lce_core.attention.cache import PreallocatedCache
from lce_core.extension import kernels
from lce_core.extension.extended_model import ExtendedModel
from lce_core.extension.extending import extend
from lce_core.methods import METHODS, Method
from lce_core.rope import ContextLengths
from lce_core.training.recomputation import enable

WINDOW, CHUNK = 32768, 4096
"""Tokens of the text, and of the chunk that a chunked prefill adds to it."""
META = torch.device("meta")
_WAITS = ("_local_scalar_dense", "nonzero", "bincount", "unique", "_unique2", "masked_select")
"""Operations that wait until the device has computed their input."""
_READS = (
    *(torch.Tensor.item, torch.Tensor.tolist, torch.Tensor.__bool__),
    *(torch.Tensor.__int__, torch.Tensor.__float__, torch.Tensor.__index__),
)
"""Methods of a tensor that wait until the device has computed it."""


_FREE = ("detach", "alias", "_unsafe_view", "empty", "empty_like", "new_empty", "empty_strided")
"""Operations that start no work although their schema declares no view: no kernel runs."""


class Operations(TorchDispatchMode):
    """Call `seen` with the name and all tensors of each operation except views and allocations.

    With `parts`, it receives the parts of operations that torch hands over whole, such as `to` and
    `matmul` in inference mode. Fake tensors do not allow it.
    """

    def __init__(
        self, seen: Callable[[str, list[torch.Tensor]], None], *, parts: bool = False
    ) -> None:
        super().__init__()
        self._seen, self._parts = seen, parts

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self._parts:
            with self:
                found = func.decompose(*args, **(kwargs or {}))
            if found is not NotImplemented:
                return found
        result = func(*args, **(kwargs or {}))
        name = func.name().removeprefix("aten::").partition(".")[0]
        is_view = any(r.alias_info and not r.alias_info.is_write for r in func._schema.returns)
        if not is_view and name not in _FREE:
            leaves = tree_leaves((args, kwargs, result))
            self._seen(name, [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)])
        return result


@dataclass
class Count:
    """Launches and waits of some operations."""

    launches: int = 0
    waits: int = 0

    def add(self, name: str, _: object) -> None:
        self.launches += 1
        self.waits += name in _WAITS


class _Calls(TorchFunctionMode):
    """Count reads of values, which meta tensors do not have."""

    def __init__(self, count: Count) -> None:
        super().__init__()
        self._count = count

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _READS and args[0].device == META:
            self._count.waits += 1
            if func is torch.Tensor.tolist:
                return torch.zeros(args[0].shape).tolist()
            return func is torch.Tensor.__bool__
        return func(*args, **(kwargs or {}))


def _flash(
    *states: torch.Tensor, is_causal: bool = False, scale: float | None = None, **_: Any
) -> torch.Tensor:
    """Compute SDPA with the operator of its flash kernel, which torch does not choose on meta."""
    attend = torch.ops.aten._scaled_dot_product_flash_attention
    return attend(*states[:3], 0.0, is_causal, scale=scale)[0]


@contextmanager
def counting(*, training: bool = False) -> Iterator[Count]:
    """Count what runs inside the `with` block, with the code paths of a GPU."""
    count = Count()
    with ExitStack() as stack:
        for module in (causal, flash, registered, kernels):
            stack.enter_context(mock.patch.object(module, "backend", return_value="torch_flash"))
        # torch knows no autocast on meta devices.
        stack.enter_context(mock.patch.object(torch, "is_autocast_enabled", return_value=False))
        for module in (torch.nn.functional, causal):
            stack.enter_context(mock.patch.object(module, "scaled_dot_product_attention", _flash))
        stack.enter_context(torch.inference_mode(mode=not training))
        stack.enter_context(Operations(count.add, parts=True))
        stack.enter_context(_Calls(count))
        yield count


def extended(method: str, layers: int, *, training: bool = False) -> ExtendedModel:
    """Return a bf16 model without values, with the method's last example applied."""
    base = random_llama("Llama-2-7B", layers=layers)
    with META:
        model = AutoModelForCausalLM.from_config(
            base.config(),  # type: ignore[attr-defined]
            dtype=torch.bfloat16,
            attn_implementation="sdpa",
        )
    return extend(model.eval(), base, plugin(method), target=WINDOW, training=training)


def plugin(method: str) -> Method:
    """Return the method, with the parameters of its last example if it needs any."""
    fields = METHODS.load(method).model_fields.values()
    needed = any(one.is_required() for one in fields)
    parameters = METHODS.load(method).examples[-1] if needed else {}
    return METHODS.parse({"name": method, **parameters}, "perf")


def passes(model: ExtendedModel) -> dict[str, Count]:
    """Count a pass over the whole text, a later chunk of prefill, and the decoding of a token."""
    found: dict[str, Count] = {}

    def run(name: str, tokens: int, cache: PreallocatedCache | None) -> None:
        with counting() as found[name]:
            model.hidden_states(torch.zeros(1, tokens, dtype=torch.int64, device=META), cache)

    # Every model finds the same cache, so that the difference of two models is a layer.
    flash._bounds.cache_clear()
    model.begin_request(WINDOW)
    # The first passes compute cosines, which later passes read from a cache.
    run("first", WINDOW, None)
    run("forward", WINDOW, None)
    cache = model.new_cache(WINDOW)
    run("earlier", WINDOW - CHUNK - 1, cache)
    run("prefill", CHUNK, cache)
    run("decode", 1, cache)
    return {name: found[name] for name in ("forward", "prefill", "decode")}


def of_a_layer(one: Mapping[str, Count], two: Mapping[str, Count]) -> Row:
    """Return launches of each pass and waits of all: the difference of two layers and one."""
    launches = {name: two[name].launches - one[name].launches for name in one}
    return {**launches, "waits": sum(two[name].waits - one[name].waits for name in one)}


def measured(method: str) -> Row:
    """Return launches and waits per layer of the three passes, and the waits of the rest."""
    one, two = (passes(extended(method, layers)) for layers in (1, 2))
    rest = ", ".join(str(count.waits) for count in one.values())
    return {**of_a_layer(one, two), "waits per pass": rest}


def trainable(method: str) -> bool:
    geometry = random_llama("Llama-2-7B", layers=1).geometry
    lengths = ContextLengths(geometry.trained_context, WINDOW, WINDOW)
    scheme = plugin(method).training_attention(geometry, lengths)
    return scheme is None or scheme.differentiable


def training_passes(model: ExtendedModel) -> dict[str, Count]:
    """Count the forward and backward pass of a row whose layers keep attention's output."""
    network: Any = model.model
    enable(network, "attention")
    network.train()
    for parameter in network.parameters():
        # Learned frequencies are on the CPU, where a gradient without values cannot arrive.
        parameter.requires_grad_(parameter.device == META)
    length = model.inserter.piece_of(WINDOW) if model.inserter else WINDOW
    model.begin_request(length)
    model.begin_rows(np.zeros(1, dtype=np.uint64))
    tokens = torch.zeros(1, length, dtype=torch.int64, device=META)
    found: dict[str, Count] = {}
    # The first pass computes cosines, which later passes read from a cache.
    for _ in range(2):
        network.zero_grad()
        with counting(training=True) as found["forward"]:
            states = network.get_decoder()(input_ids=tokens, use_cache=False).last_hidden_state
        with counting(training=True) as found["backward"]:
            torch.autograd.backward(states, torch.empty_like(states))
    return found


def measured_training(method: str) -> Row:
    """Return launches per layer of the forward and the backward pass, and the waits of both."""
    models = (extended(method, layers, training=True) for layers in (1, 2))
    return of_a_layer(*map(training_passes, models))


def table(methods: Iterable[str], figures: Callable[[str], Row]) -> str:
    return markdown(sorted(alike(methods, figures), key=lambda row: list(row.values())[1:]))


TABLES = {
    "launches": lambda: table(METHODS.names(), measured),
    "training launches": lambda: table(filter(trainable, METHODS.names()), measured_training),
}
"""The tables of the page, by the name in the comments around them."""

if __name__ == "__main__":
    page_tables(__doc__, TABLES)
