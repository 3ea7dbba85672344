"""How each kind of step is computed, given its parents' artifacts.

One `Runner` lives in one worker process. It keeps the last model it loaded, since the cells of a
unit, and often the next unit's, ask the same weights.
"""

from __future__ import annotations

import gc
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from safetensors.numpy import save_file

from lce_core.benchmarks import BENCHMARKS, CellRequest, CellResult
from lce_core.corpora import CORPORA
from lce_core.data.held_out import HeldOutText, pack_held_out
from lce_core.data.packing import pack_rows
from lce_core.devices import resolve_device, resolve_dtype
from lce_core.errors import NonFiniteError, StoreError
from lce_core.evaluation.loss_cache import LossCache
from lce_core.execution import Execution
from lce_core.extension.extended_model import LEARNED, ExtendedModel, extend
from lce_core.methods import METHODS
from lce_core.models import MODELS, LanguageModel
from lce_core.recipe import Evaluation, Training, Upsampling
from lce_core.reports import Report
from lce_core.store.artifacts import Attempt, Store
from lce_core.store.cell_tables import ARRAYS_FILE, SAMPLES, SAMPLES_FILE, TOKEN_NLL, TOKEN_NLL_FILE
from lce_core.store.identity import canonical_json
from lce_core.store.steps import Step
from lce_core.study.step_cost import cell_cost, step_cost
from lce_core.training.job import TrainingJob
from lce_core.training.run import run


class Runner:
    """Computes steps of all kinds in this process."""

    def __init__(self, store: Store, execution: Execution, report: Report) -> None:
        self._store, self._execution, self._report = store, execution, report
        self._loaded: tuple[str, ExtendedModel] | None = None
        self._losses = LossCache()

    def ensure(self, step: Step) -> str:
        """Computes the step unless its artifact is there; returns "existing" or "computed"."""
        runners = {
            "rows": self._rows,
            "held_out": self._held_out,
            "base": self._train,
            "finetune": self._train,
            "cell": self._cell,
        }
        execution = self._execution.model_dump(mode="json")
        return self._store.ensure(step, runners[step.kind], execution).status

    def _rows(self, attempt: Attempt) -> dict[str, Any]:
        spec = attempt.step.spec
        base_model = self._tokenizing_model(spec)
        return pack_rows(
            CORPORA.from_identity(spec["corpus"]),
            base_model,
            base_model.tokenizer(self._model_folder(base_model)),
            row_length=spec["row_length"],
            num_rows=spec["num_rows"],
            upsampling=Upsampling(**spec["upsampling"]),
            seed=spec["seed"],
            folders=self._execution.data_folders,
            out=attempt.out,
            report=self._report,
        )

    def _held_out(self, attempt: Attempt) -> dict[str, Any]:
        spec = attempt.step.spec
        base_model = self._tokenizing_model(spec)
        return pack_held_out(
            CORPORA.from_identity(spec["corpus"]),
            base_model.tokenizer(self._model_folder(base_model)),
            tokens_per_domain=spec["tokens_per_domain"],
            folders=self._execution.data_folders,
            out=attempt.out,
            report=self._report,
        )

    def _train(self, attempt: Attempt) -> dict[str, Any]:
        step, execution = attempt.step, self._execution
        self._unload()
        base_model = MODELS.from_identity(step.spec["base_model"])
        job = TrainingJob(
            base_model=dict(step.spec["base_model"]),
            method=step.spec.get("method"),
            training=Training(**step.spec["training"]),
            from_scratch=step.kind == "base",
            base_folder=self._weights(step, "base", base_model),
            rows=self._parent(step, "rows"),
            seed=step.spec["seed"],
            num_steps=step.spec["num_steps"],
            row_length=step.spec["row_length"],
            target_context=step.spec.get("target_context", step.spec["row_length"]),
            out=attempt.out,
            resume=attempt.progress,
            micro_batch_tokens=self._micro_batch_tokens(step),
            device=execution.device,
            processes=execution.processes,
            threads=execution.threads,
            checkpoint_seconds=execution.checkpoint_seconds,
            gradient_checkpointing=execution.gradient_checkpointing,
            plugin_folders=execution.plugin_folders,
        )
        return run(job, self._report)

    def _cell(self, attempt: Attempt) -> dict[str, Any]:
        step, spec = attempt.step, attempt.step.spec
        base_model = MODELS.from_identity(spec["base_model"])
        benchmark = BENCHMARKS.from_identity(spec["benchmark"])
        held_out = HeldOutText.open(self._parent(step, "held_out"))
        model = self._model(step, base_model)
        result = benchmark.evaluate(
            CellRequest(
                model=model,
                tokenizer=base_model.tokenizer(self._model_folder(base_model)),
                base_model=base_model,
                held_out=held_out,
                task=spec["task"],
                eval_length=spec["eval_length"],
                seed=spec.get("seed", 0),
                data_folders=self._execution.data_folders,
                batch_tokens=self._micro_batch_tokens(step),
                losses=self._losses,
                prompt_folder=self._store.prompts,
                report=lambda done, total: self._report({"done": done, "total": total}),
            )
        )
        _require_finite(result, step)
        _write_tables(result, attempt.out)
        return {
            "scores": [asdict(score) for score in result.scores],
            "unit": benchmark.unit,
            "profile": benchmark.profile,
            "default_metric": benchmark.default_metric,
            "kernel": model.kernel,
            "measured": asdict(cell_cost(step, result.sequences)),
            "predicted": asdict(step_cost(step)),
        }

    def _model(self, step: Step, base_model: LanguageModel) -> ExtendedModel:
        spec = step.spec
        evaluation = Evaluation(**spec["evaluation"])
        identity = [step.parents.get("checkpoint"), spec["base_model"], spec["method"]]
        key = canonical_json([*identity, spec["target_context"], spec["evaluation"]])
        if self._loaded is not None and self._loaded[0] == key:
            return self._loaded[1]
        self._unload()
        device = resolve_device(self._execution.device)
        folder = self._weights(step, "checkpoint", base_model)
        weights = base_model.load(folder, resolve_dtype(evaluation.precision))
        learned = None if folder is None else folder / LEARNED
        extended = extend(
            weights.to(device).eval(),  # type: ignore[arg-type]
            base_model,
            METHODS.from_identity(spec["method"]),
            target=spec["target_context"],
            kernel=evaluation.kernel,
            learned=learned if learned and learned.is_file() else None,
        )
        self._loaded = (key, extended)
        return extended

    def _weights(self, step: Step, role: str, base_model: LanguageModel) -> Path | None:
        if role in step.parents:
            return self._parent(step, role) / "model"
        return self._model_folder(base_model)

    def _parent(self, step: Step, role: str) -> Path:
        folder = self._store.find(step.parents[role])
        if folder is None:
            raise StoreError(f"{step.folder}: its {role} {step.parents[role][:12]} is not there")
        return folder

    def _tokenizing_model(self, spec: Mapping[str, Any]) -> LanguageModel:
        return MODELS.load(spec["tokenizer"]["name"])()

    def _model_folder(self, base_model: LanguageModel) -> Path | None:
        return self._execution.model_folders.get(base_model.plugin_name)

    def _micro_batch_tokens(self, step: Step) -> int:
        # After each failure for want of memory half as much at a time; the global batch stays.
        failure = self._store.failure(step) or {}
        times = int(failure.get("short_of_memory", 0))
        return max(1, self._execution.micro_batch_tokens >> times)

    def _unload(self) -> None:
        # The next model, or a trainer that shares this device, needs the memory.
        self._loaded, self._losses = None, LossCache()
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def _require_finite(result: CellResult, step: Step) -> None:
    for score in result.scores:
        if not np.isfinite(score.value):
            raise NonFiniteError(f"{step.name}: {score.metric} is {score.value}")


def _write_tables(result: CellResult, out: Path) -> None:
    samples = [asdict(sample) for sample in result.samples]
    bins = [{"position_bin": start, "nll": nll} for start, nll in result.token_nll]
    pq.write_table(pa.Table.from_pylist(samples, SAMPLES), out / SAMPLES_FILE)
    pq.write_table(pa.Table.from_pylist(bins, TOKEN_NLL), out / TOKEN_NLL_FILE)
    if result.arrays:
        save_file(dict(result.arrays), out / ARRAYS_FILE)
