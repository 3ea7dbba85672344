"""Watch the torch operations that compute or copy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

_FREE = ("detach", "alias", "_unsafe_view", "empty", "empty_like", "new_empty", "empty_strided")
"""Operations that start no work although their schema declares no view: no kernel runs."""


class Operations(TorchDispatchMode):
    """Call `seen` with the name and all tensors of each operation except views and allocations.

    Args:
      seen: receives each operation.
      parts: True to watch the parts of operations that torch hands over whole, such as `to` and
        `matmul` in inference mode. Fake tensors do not allow it.
    """

    def __init__(
        self, seen: Callable[[str, list[torch.Tensor]], None], *, parts: bool = False
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
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
