"""Methods that share a file with others of their kind, for the registry."""

from __future__ import annotations

from lce_core.methods import Method
from lce_core.methods._by_parts import DynamicYarn, Llama3, NtkByParts, Yarn
from lce_core.methods._ntk import (
    DynamicNtkAware,
    DynamicPositionInterpolation,
    Ntk32k,
    Ntk64k,
    NtkFrozen,
)
from lce_core.methods._other_base import AdjustedBase, BoundKept, SmallBase

TABLE: tuple[type[Method], ...] = (
    AdjustedBase,
    BoundKept,
    DynamicNtkAware,
    DynamicPositionInterpolation,
    DynamicYarn,
    Llama3,
    Ntk32k,
    Ntk64k,
    NtkByParts,
    NtkFrozen,
    SmallBase,
    Yarn,
)
