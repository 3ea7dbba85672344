"""What CUDA graphs do, for a machine without CUDA: operations on fixed tensors, done again.

No Python runs when a recording is replayed, so every number that it passed on stays as it was.
Results of the recording itself are spoilt, and waiting for the device while recording is an error.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

_WAITING = ("_local_scalar_dense", "nonzero", "equal")


class _Operations(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.done: list[tuple[Any, tuple[Any, ...], dict[str, Any], Any]] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = func.name().removeprefix("aten::").partition(".")[0]
        assert name not in _WAITING, f"{name} waits for the device while it is recorded"
        result = func(*args, **(kwargs or {}))
        self.done.append((func, args, kwargs or {}, result))
        return result


class OperationRecorder:
    """`lce_core.attention.token_graphs.CudaRecorder` of the CPU."""

    def __init__(self) -> None:
        self.num_recordings = 0
        self._mode: _Operations | None = None

    @contextmanager
    def aside(self) -> Iterator[None]:
        yield

    def begin(self) -> None:
        assert self._mode is None, "a recording within a recording"
        self._mode = _Operations()
        self._mode.__enter__()

    def end(self) -> Callable[[], None]:
        assert self._mode is not None
        mode, self._mode = self._mode, None
        mode.__exit__(None, None, None)
        self.num_recordings += 1
        for func, _, _, result in mode.done:
            if not (_is_view(func) or func._schema.is_mutable):
                _spoil(result)
        return lambda: _again(mode.done)


def _is_view(func: Any) -> bool:
    return any(one.alias_info and not one.alias_info.is_write for one in func._schema.returns)


def _tensors(result: Any) -> list[torch.Tensor]:
    leaves = torch.utils._pytree.tree_leaves(result)
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


def _spoil(result: Any) -> None:
    for tensor in _tensors(result):
        if tensor.is_floating_point():
            tensor.fill_(torch.nan)


def _again(done: list[tuple[Any, tuple[Any, ...], dict[str, Any], Any]]) -> None:
    for func, args, kwargs, result in done:
        if _is_view(func):
            continue
        new = func(*args, **kwargs)
        if func._schema.is_mutable:
            continue
        for old, one in zip(_tensors(result), _tensors(new), strict=True):
            if "empty" not in func.name():
                old.copy_(one)
