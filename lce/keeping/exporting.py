"""`lce export`: write one variant of a study as a model folder that transformers can load."""

from pathlib import Path
from typing import Any, cast

from flows.request import as_last_run, compile_request
from flows.selection import select_cells
from flows.settings import mlflow_server
from lce_core.errors import SpecError, did_you_mean
from lce_core.execution import Execution
from lce_core.export.stock_form import Subject
from lce_core.methods import Method
from lce_core.recipe import Precision
from lce_core.store.artifacts import Store
from lce_core.store.file_facts import FileFacts
from lce_core.store.records import WEIGHTS, Record
from lce_core.store.steps import Step
from lce_core.study.plan import PlannedCell, StudyPlan
from lce_core.study.plan_checks import published_folder
from lce_core.study.step_kinds import CellSpec, SearchSpec, spec_of
from lce_core.study.variants import variant_name

_PRECISIONS = ("fp32", "bf16")


def export_variant(
    study: str,
    execution: Execution,
    out: Path,
    *,
    select: str,
    length: int | None,
    precision: str | None,
    mlflow: str | None = None,
) -> list[str]:
    """Write the selected variant to the new folder `out`; return a summary, one string per line.

    A method whose frequencies depend on the request length needs `length`, in tokens. Without a
    `precision` the weights keep that of their source. `mlflow` is a name of the model registry.
    """
    if precision not in (None, *_PRECISIONS):
        raise SpecError(
            "--precision", precision, "fp32 or bf16", did_you_mean(str(precision), _PRECISIONS)
        )
    study, execution = as_last_run(study, execution)
    plan = compile_request(study, execution).plan
    cell = _one_variant(select_cells(plan, select))
    with FileFacts(execution.home).in_use():
        subject = _subject(plan, cell, Store(execution.home), execution)
    from lce_core.export.folder import export  # loads torch

    form = export(subject, out, length=length, precision=cast(Precision | None, precision))
    lines = [f"{out}", f"rope_parameters: {_shown(dict(form.rope_parameters))}"]
    if mlflow is not None:
        lines.append(_registered(plan, cell, out, mlflow, execution.home))
    return lines


def _registered(plan: StudyPlan, cell: PlannedCell, folder: Path, name: str, home: Path) -> str:
    from tasks.tracking.database import destination
    from tasks.tracking.projection import register

    about = {
        "lce.study": plan.study.study,
        "lce.base_model": cell.base_model,
        "lce.variant": variant_name(cell.method, cell.frozen),
        "lce.seed": str(cell.seed),
        "lce.checkpoint": cell.checkpoint.fingerprint if cell.checkpoint else "base model",
    }
    address = register(destination(home, mlflow_server(home)), plan.to_json(), folder, name, about)
    return f"registered as {address}"


def _one_variant(plan: StudyPlan) -> PlannedCell:
    """Return a cell that this machine can compute, from a plan with only one variant.

    A variant is a base model with a method and weights: the base model's own, published ones, or
    those of one training run.
    """
    variants: dict[tuple[object, ...], list[PlannedCell]] = {}
    for cell in plan.cells:
        weights = cell.checkpoint.fingerprint if cell.checkpoint else None
        place = (cell.base_model, cell.method, cell.frozen, weights)
        variants.setdefault(place, []).append(cell)
    if len(variants) != 1:
        listed = [
            f"base_model={first.base_model},variant={variant_name(first.method, first.frozen)},"
            f"seed={first.seed}"
            for first, *_ in variants.values()
        ]
        raise SpecError(
            "--select",
            f"cells of {len(variants)} variants",
            "cells of one variant",
            "pass one of these to --select",
            "\n".join(f"  {line}" for line in listed),
        )
    ((first, *others),) = variants.values()
    found = next((cell for cell in (first, *others) if cell.step), None)
    if found is None:
        raise SpecError(
            f"{first.base_model}, {first.method}",
            "no cell that can be computed on this machine"
            f" (reason for the first cell: {first.unavailable})",
            "a variant with at least one cell that can be computed on this machine",
            "provide the missing data or weights",
        )
    return found


def _subject(plan: StudyPlan, cell: PlannedCell, store: Store, execution: Execution) -> Subject:
    assert cell.step is not None
    spec = spec_of(cell.step)
    assert isinstance(spec, CellSpec)
    record: Record | None = None
    if spec.published is not None:
        folder = published_folder(spec.published, execution.model_folders)
    elif cell.checkpoint is None:
        named = execution.model_folders.get(spec.base_model.known_as)
        models = store.models
        folder = named or spec.base_model.fetched(models) or spec.base_model.fetch(models)
    else:
        record = store.record(cell.checkpoint)
        folder = store.path(cell.checkpoint) / WEIGHTS
        if record is None:
            raise _without_checkpoint(plan, cell, cell.checkpoint, store)
    return Subject(
        study=plan.study.study,
        variant=variant_name(cell.method, cell.frozen),
        base_model=spec.base_model,
        method=_settled(spec.method, cell.step, plan, store),
        target_context=spec.target_context,
        weights=folder,
        training=record,
        digest=spec.published or spec.weights,
    )


def _without_checkpoint(
    plan: StudyPlan, cell: PlannedCell, checkpoint: Step, store: Store
) -> SpecError:
    assert cell.step is not None
    folder, remedy = store.path(checkpoint), f"train it with `lce run {plan.study.study}`"
    if store.record(cell.step):  # a run trains only what a missing cell needs
        remedy = (
            f"copy {folder} from the home that trained it; to train it here, delete"
            f" {store.path(cell.step)}, a result that needs it, and run"
            f" `lce run {plan.study.study}`"
        )
    got, expected = "no undamaged checkpoint in the store", "a variant whose training is finished"
    if store.result(checkpoint) is not None:
        got = "a finished training whose weights are elsewhere"
        expected = f"its weights in {folder / WEIGHTS}"
    return SpecError(f"{checkpoint.kind} {checkpoint.name}", got, expected, remedy)


def _settled(method: Method, step: Step, plan: StudyPlan, store: Store) -> Method:
    fingerprint = step.parents.get(SearchSpec.kind)
    if fingerprint is None:
        return method
    record = store.record(plan.steps[fingerprint])
    if record is None:
        raise SpecError(
            f"{method.plugin_name}.search",
            "no undamaged result of the search in the store",
            "a variant whose search is finished",
            f"run `lce run {plan.study.study}`",
        )
    return method.settled(record.result["parameters"])


def _shown(parameters: dict[str, Any]) -> str:
    for key in ("short_factor", "long_factor"):
        if key in parameters:
            parameters[key] = f"<{len(parameters[key])} numbers>"
    return ", ".join(f"{key} {value}" for key, value in parameters.items())
