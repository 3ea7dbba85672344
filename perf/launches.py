"""Count the GPU operations and waits of every method without a GPU.

The forward pass of Llama-2-7B runs on torch's meta device, whose tensors have shapes but no values,
with the code paths of a GPU from compute capability 8.0. Every operation that would start work on a
GPU counts as one launch: views and allocations do not count. Some operations, such as sort, start
several kernels on a GPU and still count once. Reading a value from the device counts as a wait.
Counts per layer are the difference between a model of two layers and a model of one.

    python perf/launches.py          # print the table
    python perf/launches.py --write  # replace the table in docs/gpus.md
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from lce_core.attention import flash, stock
from lce_core.attention.cache import PreallocatedCache
from lce_core.extension import kernels
from lce_core.extension.extended_model import ExtendedModel
from lce_core.extension.extending import extend
from lce_core.methods import METHODS
from lce_core.models import MODELS, LanguageModel
from lce_core.study.plugin_folders import add_plugin_folders

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent / "docs" / "gpus.md"
START, END = "<!-- launches: start -->", "<!-- launches: end -->"
WINDOW, CHUNK = 32768, 4096
"""Tokens of the text, and of the chunk that a chunked prefill adds to it."""
META = torch.device("meta")
_FREE = ("detach", "alias", "_unsafe_view", "empty", "empty_like", "new_empty", "empty_strided")
"""Operations that start no work although their schema declares no view: no kernel runs."""
_WAITS = ("_local_scalar_dense", "nonzero", "bincount", "unique", "_unique2", "masked_select")
"""Operations that wait until the device has computed their input."""
_READS = (
    *(torch.Tensor.item, torch.Tensor.tolist, torch.Tensor.__bool__),
    *(torch.Tensor.__int__, torch.Tensor.__float__, torch.Tensor.__index__),
)
"""Methods of a tensor that wait until the device has computed it."""


@dataclass
class Count:
    """Launches and waits of some operations."""

    launches: int = 0
    waits: int = 0


class _Operations(TorchDispatchMode):
    def __init__(self, count: Count) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._count = count

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.name().removeprefix("aten::").partition(".")[0]
        if name in _WAITS:
            self._count.waits += 1
        is_view = any(
            one.alias_info and not one.alias_info.is_write for one in func._schema.returns
        )
        if not is_view and name not in _FREE:
            self._count.launches += 1
        return func(*args, **(kwargs or {}))


class _Calls(TorchFunctionMode):
    """Count reads of values, which meta tensors do not have, and choose SDPA's fused kernel."""

    def __init__(self, count: Count) -> None:
        super().__init__()
        self._count = count

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = kwargs or {}
        if func in _READS and args[0].device == META:
            self._count.waits += 1
            if func is torch.Tensor.tolist:
                return torch.zeros(args[0].shape).tolist()
            return func is torch.Tensor.__bool__
        if func is torch.nn.functional.scaled_dot_product_attention:
            query, key, value = args
            return torch.ops.aten._scaled_dot_product_flash_attention(
                query, key, value, 0.0, given.get("is_causal", False), scale=given.get("scale")
            )[0]
        return func(*args, **given)


@contextmanager
def counting() -> Iterator[Count]:
    """Count what runs inside the `with` block, with the code paths of a GPU."""
    count = Count()
    with ExitStack() as stack:
        for module in (flash, stock, kernels):
            stack.enter_context(mock.patch.object(module, "backend", return_value="torch_flash"))
        # torch knows no autocast on meta devices.
        stack.enter_context(mock.patch.object(torch, "is_autocast_enabled", return_value=False))
        stack.enter_context(torch.inference_mode())
        stack.enter_context(_Operations(count))
        stack.enter_context(_Calls(count))
        yield count


def base_model(layers: int) -> LanguageModel:
    """Return a Llama of 7B width with this number of layers."""
    add_plugin_folders((HERE / "plugins",))
    return MODELS.parse({"name": "random_llama", "layers": layers}, "perf/launches")


def extended(method: str, layers: int) -> ExtendedModel:
    """Return a bf16 model without values, with the method's last example applied."""
    from transformers import AutoModelForCausalLM

    base = base_model(layers)
    with META:
        model = AutoModelForCausalLM.from_config(
            base.config(),  # type: ignore[attr-defined]
            dtype=torch.bfloat16,
            attn_implementation="sdpa",
        )
    chosen = METHODS.parse({"name": method, **parameters(method)}, "perf/launches")
    return extend(model.eval(), base, chosen, target=WINDOW)


def parameters(method: str) -> dict[str, Any]:
    """Return the parameters of the method: {} if it needs none, else those of its last example."""
    fields = METHODS.load(method).model_fields.values()
    needed = any(one.is_required() for one in fields)
    return dict(METHODS.load(method).examples[-1]) if needed else {}


def passes(model: ExtendedModel) -> dict[str, Count]:
    """Count a pass over the whole text, a later chunk of prefill, and the decoding of a token."""
    found: dict[str, Count] = {}

    def run(name: str, tokens: int, cache: PreallocatedCache | None) -> None:
        with counting() as found[name]:
            model.hidden_states(torch.zeros(1, tokens, dtype=torch.int64, device=META), cache)

    model.begin_request(WINDOW)
    # The first passes compute cosines, which later passes read from a cache.
    run("first", WINDOW, None)
    run("forward", WINDOW, None)
    cache = model.new_cache(WINDOW)
    run("earlier", WINDOW - CHUNK - 1, cache)
    run("prefill", CHUNK, cache)
    run("decode", 1, cache)
    return {name: found[name] for name in ("forward", "prefill", "decode")}


def measured(method: str) -> tuple[int, ...]:
    """Return launches and waits per layer of the three passes, then waits of a pass."""
    one, two = (passes(extended(method, layers)) for layers in (1, 2))
    return (
        *(two[name].launches - one[name].launches for name in one),
        sum(two[name].waits - one[name].waits for name in one),
        *(count.waits for count in one.values()),
    )


def table() -> str:
    """Return the Markdown table of all methods; methods with equal counts share a row."""
    rows: dict[tuple[int, ...], list[str]] = {}
    for method in METHODS.names():
        rows.setdefault(measured(method), []).append(method)
    lines = [
        "| methods | forward | prefill | decode | waits | waits per pass |",
        "|---|--:|--:|--:|--:|---|",
    ]
    for counts, methods in sorted(rows.items()):
        launches = " | ".join(f"{number:,}" for number in counts[:4])
        lines.append(f"| {', '.join(methods)} | {launches} | {', '.join(map(str, counts[4:]))} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--write", action="store_true", help="replace the table in docs/gpus.md")
    found = table()
    if parser.parse_args().write:
        text = PAGE.read_text(encoding="utf-8")
        before, rest = text.split(START)
        after = rest.split(END)[1]
        PAGE.write_text(f"{before}{START}\n{found}\n{END}{after}", encoding="utf-8")
    print(found)


if __name__ == "__main__":
    main()
