"""Steps with any values for a spec, for tests of what stores, shows or projects steps."""

from collections.abc import Mapping
from typing import Any

from lce_core.benchmarks import BENCHMARKS
from lce_core.store.artifacts import Attempt
from lce_core.store.steps import Step, make_step


def free_step(
    kind: str,
    name: str,
    values: Mapping[str, Any],
    parents: Mapping[str, Step],
    axes: Mapping[str, Any] | None = None,
) -> Step:
    return make_step(kind, 1, dict(values), name, parents, axes)


def write_file(attempt: Attempt) -> dict[str, Any]:
    (attempt.out / "file").write_text("a", encoding="utf-8")
    return {}


def planned_training(step: Step, method: str | None, seed: int, base_model: str) -> dict[str, Any]:
    return {
        "fingerprint": step.fingerprint,
        "checkpoint": step.id,
        "folder": step.folder,
        "kind": step.kind,
        "base_model": base_model,
        "method": method,
        "seed": seed,
    }


def planned_cell(
    step: Step, checkpoint: Step | None, unavailable: str | None = None, **axes: Any
) -> dict[str, Any]:
    """A plan's entry for a step that evaluates a tiny model: frozen at 128, or tuned at 512."""
    there = unavailable is None
    return {
        "fingerprint": step.fingerprint if there else None,
        "cell": step.id if there else None,
        "folder": step.folder if there else None,
        "profile": "tiny",
        "train_length": 128 if axes["frozen"] else 512,
        "target_context": 512,
        "waits_for_data": False,
        "kind": BENCHMARKS.load(axes["benchmark"]).kind,
        "method_name": axes["method"],
        **dict.fromkeys(("choice", "learning_rate", "train_tokens", "train_flops")),
        "checkpoint": checkpoint.id if checkpoint else None,
        "unavailable": unavailable,
        "blocked_by": [checkpoint.id] if checkpoint and there else [],
        **axes,
    }
