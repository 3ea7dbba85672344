"""Compute the steps of a study's plan in a worker process."""

import gc
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from functools import partial, singledispatchmethod
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from safetensors.numpy import save_file

from lce_core.attention.token_graphs import CudaRecorder, can_record
from lce_core.benchmarks import CellRequest, CellResult
from lce_core.corpora import StreamedCorpus
from lce_core.data.held_out import HeldOutText, pack_held_out, require_window
from lce_core.data.packing import pack_rows
from lce_core.data.shards import seconds_tokenised, write_shards
from lce_core.devices import resolve_device, resolve_dtype
from lce_core.errors import DataError, LceError, NonFiniteError, StoreError
from lce_core.evaluation.long_cell import LONG_SECONDS, LongCell, assist
from lce_core.evaluation.parameter_search import draw_samples, search_parameters
from lce_core.evaluation.passes import counted, shape_of_passes
from lce_core.evaluation.windows import LossCache
from lce_core.execution import Execution
from lce_core.extension.extended_model import ExtendedModel
from lce_core.extension.extending import extend
from lce_core.extension.learned import LEARNED
from lce_core.methods import Method
from lce_core.models import MODELS, LanguageModel, weights_digest
from lce_core.progress import Report
from lce_core.store.artifacts import Attempt, Store
from lce_core.store.cell_tables import (
    ARRAYS_FILE,
    CONTROLLED_SAMPLES,
    SAMPLES,
    SAMPLES_FILE,
    TOKEN_NLL,
    TOKEN_NLL_FILE,
)
from lce_core.store.identity import ID_DIGITS
from lce_core.store.odd_files import writable
from lce_core.store.records import Record, write_json
from lce_core.store.steps import Step
from lce_core.study.cost import StepCost
from lce_core.study.plan_checks import published_folder
from lce_core.study.plugin_folders import own_plugins
from lce_core.study.step_kinds import (
    CellSpec,
    ChoiceSpec,
    FinetuneSpec,
    HeldOutSpec,
    RowsSpec,
    SearchSpec,
    StepSpec,
    TextSpec,
    TokensSpec,
    TrainingSpec,
    spec_of,
)
from lce_core.study.tuning import changed
from lce_core.training.checkpoints import seconds_trained
from lce_core.training.job import TrainingJob
from lce_core.training.run import run


class Runner:
    """Compute steps of all kinds in this process. The last model stays loaded for further cells."""

    def __init__(self, store: Store, execution: Execution, report: Report) -> None:
        self._store, self._execution, self._report = store, execution, report
        self._loaded: tuple[tuple[object, ...], ExtendedModel] | None = None
        self._losses = LossCache()

    def ensure(self, step: Step) -> str:
        """Compute a missing step; return "existing", "computed" or "held" (by others)."""
        execution = self._execution.model_dump(mode="json")
        return self._store.ensure(step, self._run, execution)

    def assist(self, step: Step) -> str:
        """Score windows of another process's long cell; return "held" if none is free."""
        spec, parts = spec_of(step), self._store.parts(step)
        assert isinstance(spec, CellSpec), "only cells have parts"
        if not parts.free():
            return "held"
        with self._store.file_facts.in_use():
            model = self._model(spec, step)
        return "computed" if assist(parts, model) else "held"

    def _run(self, attempt: Attempt) -> dict[str, Any]:
        attempt.plugins.update(own_plugins(attempt.step.spec))
        return self._compute(spec_of(attempt.step), attempt)

    @singledispatchmethod
    def _compute(self, spec: StepSpec, attempt: Attempt) -> dict[str, Any]:
        raise NotImplementedError

    @_compute.register
    def _tokens(self, spec: TokensSpec, attempt: Attempt) -> dict[str, Any]:
        assert isinstance(spec.corpus, StreamedCorpus), "only streamed corpora have token shards"
        attempt.seconds_by_others = seconds_tokenised(attempt.progress)
        with self._reading(spec, attempt) as (base_model, tokenizer):
            manifest = write_shards(
                spec.corpus,
                tokenizer,
                max_ids=base_model.max_ids,
                folders=self._execution.data_folders,
                progress=attempt.progress,
                out=attempt.out,
                workers=self._execution.threads,
                report=self._report,
            )
        attempt.digests.update(manifest["sha256"])
        return {key: manifest[key] for key in ("documents", "tokens", "domains")}

    @_compute.register
    def _rows(self, spec: RowsSpec, attempt: Attempt) -> dict[str, Any]:
        with self._reading(spec, attempt) as (base_model, tokenizer):
            manifest = pack_rows(
                spec.corpus,
                base_model,
                tokenizer,
                row_length=spec.row_length,
                num_rows=spec.num_rows,
                upsampling=spec.upsampling,
                packing=spec.packing,
                seed=spec.seed,
                folders=self._execution.data_folders,
                out=attempt.out,
                report=self._report,
                shards=self._shards(attempt.step),
            )
        attempt.digests.update(manifest["sha256"])
        return manifest

    @_compute.register
    def _held_out(self, spec: HeldOutSpec, attempt: Attempt) -> dict[str, Any]:
        with self._reading(spec, attempt) as (base_model, tokenizer):
            manifest = pack_held_out(
                spec.corpus,
                tokenizer,
                max_ids=base_model.max_ids,
                tokens_per_domain=spec.tokens_per_domain,
                document_tokens=spec.document_tokens,
                after_tokens=spec.after_tokens,
                needed=spec.needed,
                folders=self._execution.data_folders,
                out=attempt.out,
                report=self._report,
                shards=self._shards(attempt.step),
            )
        attempt.digests.update(manifest["sha256"])
        return manifest

    @contextmanager
    def _reading(self, spec: TextSpec, attempt: Attempt) -> Iterator[tuple[LanguageModel, Any]]:
        """Yield the model that tokenises the text, and its tokenizer."""
        by, digest = spec.tokenizer, partial(spec.corpus.digest, self._execution.data_folders)
        what = f"text of {spec.corpus.plugin_name}"
        base_model = MODELS.from_identity({"name": by.name, "version": by.version, **by.parameters})
        folder = self._model_folder(attempt.step, base_model, by.weights)
        is_read = self._shards(attempt.step)  # by the step that wrote the shards
        with nullcontext() if is_read else _unchanged(what, digest, spec.digest, attempt):
            yield base_model, base_model.tokenizer(folder)

    @_compute.register
    def _train(self, spec: TrainingSpec, attempt: Attempt) -> dict[str, Any]:
        step, execution, training = attempt.step, self._execution, spec.training
        tuned = spec if isinstance(spec, FinetuneSpec) else None
        method = tuned and self._settled(tuned.method, step)
        chosen: dict[str, Any] = {}
        if "choice" in step.parents:
            choice = Record.read(self._parent(step, "choice")).result
            chosen = {choice["field"]: choice["value"]}
            training = changed(training, choice["field"], choice["value"])
        if text := step.axes.get("validation"):  # a trial needs the text that evaluates it
            folder = self._artifact(step, "validation text", text)
            require_window(folder, Record.read(folder).spec.get("needed"), step.axes["window"])
        self._unload()
        attempt.seconds_by_others = seconds_trained(attempt.progress)
        job = TrainingJob(
            base_model=spec.base_model.identity(),
            method=None if method is None else method.identity(),
            training=training,
            from_scratch=method is None,
            base_folder=self._weights(
                step, "base", spec.base_model, tuned.weights if tuned else None
            ),
            rows=self._parent(step, "rows"),
            seed=spec.seed,
            data_seed=spec.data_seed,
            num_steps=spec.num_steps,
            row_length=spec.row_length,
            target_context=tuned.target_context if tuned else spec.row_length,
            train_positions=tuned.train_positions if tuned else "exact",
            out=attempt.out,
            resume=attempt.progress,
            micro_batch_tokens=self._micro_batch_tokens(step),
            device=execution.device,
            processes=execution.training_processes,
            accelerate_config=execution.accelerate_config,
            threads=execution.threads,
            checkpoint_seconds=execution.checkpoint_seconds,
            gradient_checkpointing=execution.gradient_checkpointing,
            compile_layers=execution.compile_layers,
            plugin_folders=execution.plugin_folders,
        )
        result = run(job, self._report)
        return {**result, "chosen": chosen} if chosen else result

    @_compute.register
    def _search(self, spec: SearchSpec, attempt: Attempt) -> dict[str, Any]:
        step, base_model = attempt.step, spec.base_model
        samples = draw_samples(
            spec.search,
            HeldOutText.open(self._parent(step, "validation")),
            spec.target_context,
            base_model.tokenizer(self._model_folder(step, base_model, spec.weights)),
            base_model.keys,
        )
        model = self._model(spec, step)
        self._loaded = None  # the search changes the model's method
        found = search_parameters(
            spec.method,
            model,
            samples,
            batch_tokens=self._micro_batch_tokens(step),
            progress=attempt.progress,
            out=attempt.out,
            report=self._report,
        )
        return asdict(found)

    def _settled(self, method: Method, step: Step) -> Method:
        if SearchSpec.kind not in step.parents:
            assert method.open_search() is None, "the plan has a search for every open parameter"
            return method
        found = Record.read(self._parent(step, SearchSpec.kind)).result
        return method.settled(found["parameters"])

    @_compute.register
    def _choice(self, spec: ChoiceSpec, attempt: Attempt) -> dict[str, Any]:
        def nll_of(role: str) -> float:
            scores = Record.read(self._parent(attempt.step, role)).result["scores"]
            return float(np.log(next(s["value"] for s in scores if s["metric"] == "perplexity")))

        nll = [
            float(np.mean([nll_of(spec.role(n, one)) for one in spec.domains]))
            for n in range(len(spec.values))
        ]
        best = int(np.argmin(nll))
        result = {"field": spec.field, "value": spec.values[best], "trial": best, "nll": nll}
        write_json(attempt.out / "choice.json", result)
        return result

    @_compute.register
    def _cell(self, spec: CellSpec, attempt: Attempt) -> dict[str, Any]:
        step, base_model, benchmark = attempt.step, spec.base_model, spec.benchmark
        held_out = HeldOutText.open(self._parent(step, "held_out"))
        model, batch_tokens = self._model(spec, step), self._micro_batch_tokens(step)
        seconds = min(LONG_SECONDS, self._execution.checkpoint_seconds)
        parts = self._store.parts(step)
        cell = LongCell(parts, model, batch_tokens=batch_tokens, seconds=seconds)
        request = CellRequest(
            model=model,
            tokenizer=base_model.tokenizer(self._model_folder(step, base_model, spec.weights)),
            base_model=base_model,
            held_out=held_out,
            task=spec.task,
            eval_length=spec.eval_length,
            seed=spec.seed or 0,
            data_folders=self._execution.data_folders,
            batch_tokens=batch_tokens,
            losses=self._losses,
            cell=cell,
            prompt_folder=self._store.prompts,
            report=lambda done, total: self._report({"done": done, "total": total}),
        )
        digest = partial(benchmark.digest, spec.task, self._execution.data_folders)
        reading = _unchanged(f"data of {benchmark.plugin_name}", digest, spec.data, attempt)
        with reading, counted(model) as passed:
            result = benchmark.evaluate(request)
        _require_finite(result, step)
        _write_tables(result, attempt.out)
        attempt.seconds_by_others = cell.seconds_by_others
        return {
            "scores": [asdict(score) for score in result.scores],
            "unit": benchmark.unit,
            "profile": benchmark.profile,
            "default_metric": benchmark.default_metric,
            "kernel": model.kernel,
            "data": list(benchmark.data_names(spec.task, self._execution.data_folders)),
            "prompt_tokens": result.sequences.lengths,
            "prompts_sha256": result.prompts_sha256,
            **({"checks": dict(result.checks)} if result.checks else {}),
            "passes": shape_of_passes(model, batch_tokens),
            "passed_tokens": passed.tokens + cell.tokens_by_others,
            "measured": _passed(spec.cost_of(result.sequences, result.control_sequences)),
            "predicted": _passed(spec.cost(step)),
        }

    def _model(self, spec: CellSpec | SearchSpec, step: Step) -> ExtendedModel:
        base_model, evaluation = spec.base_model, spec.evaluation
        checkpoint = step.parents.get("checkpoint")
        weights_of = (checkpoint, spec.published, spec.weights)
        method = self._settled(spec.method, step) if isinstance(spec, CellSpec) else spec.method
        key = (weights_of, base_model, method, spec.target_context, evaluation)
        if self._loaded is not None and self._loaded[0] == key:
            return self._loaded[1]
        self._unload()
        device = resolve_device(self._execution.device)
        dtype = resolve_dtype(evaluation.precision)
        if spec.published is None:
            folder = self._weights(step, "checkpoint", base_model, spec.weights)
            weights = base_model.load(folder, dtype)
        else:
            folder = published_folder(spec.published, self._execution.model_folders)
            weights = base_model.load_published(folder, dtype)
        learned = None if folder is None else folder / LEARNED
        extended = extend(
            weights.to(device).eval(),  # type: ignore[arg-type]
            base_model,
            method,
            target=spec.target_context,
            kernel=evaluation.kernel,
            rotation=evaluation.rotation or "fp32",
            learned=learned if learned and learned.is_file() else None,
        )
        has_experts = base_model.shape.experts is not None
        if self._execution.token_graphs and can_record(device, dtype, has_experts=has_experts):
            extended.replay_tokens(CudaRecorder(device))
        self._loaded = (key, extended)
        return extended

    def _weights(
        self, step: Step, role: str, base_model: LanguageModel, digest: str | None
    ) -> Path | None:
        if role in step.parents:
            return self._parent(step, role) / "model"
        return self._model_folder(step, base_model, digest)

    def _parent(self, step: Step, role: str) -> Path:
        return self._artifact(step, role, step.parents[role])

    def _artifact(self, step: Step, role: str, fingerprint: str) -> Path:
        folder = self._store.find(fingerprint)
        if folder is None:
            raise StoreError(
                step.folder,
                f"no undamaged artifact of its {role} {fingerprint[:12]}",
                "every input of the step in the store",
                "run the study again, which recomputes this input",
            )
        return folder

    def _shards(self, step: Step) -> Path | None:
        role = TokensSpec.kind
        return self._parent(step, role) if role in step.parents else None

    def _model_folder(
        self, step: Step, base_model: LanguageModel, digest: str | None
    ) -> Path | None:
        # The study's own name of the model is an axis, not part of the spec.
        name = step.axes.get("base_model", base_model.known_as)
        named = self._execution.model_folders.get(name)
        if digest is not None:
            found = None if named is None else weights_digest(named)
            _require_digest(f"weights of --model-folder {name}", found, digest)
        return named or base_model.fetched(self._store.models)

    def _micro_batch_tokens(self, step: Step) -> int:
        # Halve the number after each out-of-memory failure; the global batch stays the same.
        failure = self._store.failures.of(step) or {}
        times = int(failure.get("short_of_memory", 0))
        return max(1, self._execution.micro_batch_tokens >> times)

    def _unload(self) -> None:
        # Free memory for the next model, or for a trainer that shares this device.
        self._loaded, self._losses = None, LossCache()
        gc.collect()
        # The remaining objects belong to libraries; without freezing them, every collection would
        # search them for half a second.
        gc.freeze()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


@contextmanager
def _unchanged(
    what: str, digest: Callable[[], str | None], planned: str | None, attempt: Attempt
) -> Iterator[None]:
    """Require input with the planned digest before and after the block that reads the input."""
    _require_digest(what, digest(), planned)
    yield
    try:
        _require_digest(what, digest(), planned)
    except LceError:
        shutil.rmtree(attempt.progress, ignore_errors=True)  # may be of the changed input
        raise


def _require_digest(what: str, found: str | None, planned: str | None) -> None:
    if found != planned:
        raise DataError(
            what,
            f"the digest {str(found)[:ID_DIGITS]}",
            f"{str(planned)[:ID_DIGITS]}, as when the study was planned",
            "run the study again, which plans it with the present files, or restore the old ones",
        )


def _passed(cost: StepCost) -> dict[str, float]:
    return {"tokens": cost.tokens, "flops": cost.flops}


def _require_finite(result: CellResult, step: Step) -> None:
    for score in result.scores:
        if not np.isfinite(score.value):
            raise NonFiniteError(
                step.name,
                f"{score.metric} {score.value}",
                "finite scores",
                "check the checkpoint and its precision",
            )


def _write_tables(result: CellResult, out: Path) -> None:
    # A tokenizer written in Python can answer with half of a surrogate pair.
    samples = [writable(asdict(sample)) for sample in result.samples]
    bins = [{"position_bin": start, "nll": nll} for start, nll in result.token_nll]
    schema = CONTROLLED_SAMPLES if result.control_sequences.counts else SAMPLES
    pq.write_table(pa.Table.from_pylist(samples, schema), out / SAMPLES_FILE)
    pq.write_table(pa.Table.from_pylist(bins, TOKEN_NLL), out / TOKEN_NLL_FILE)
    if result.arrays:
        save_file(dict(result.arrays), out / ARRAYS_FILE)
