"""Evaluate tasks of lm-evaluation-harness on data in local folders; imports lm_eval.

The harness's wrapper of Hugging Face models pads batches and calls `forward`. Methods with another
attention or with inserted tokens support neither, so `ExtendedLM` runs the model through
`lce_core.evaluation`. It tokenises and truncates prompts like the harness.
"""

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import lm_eval
import numpy as np
from datasets import Dataset
from lm_eval.api.model import LM, TemplateLM
from lm_eval.defaults import DEFAULT_OTHER_SEED
from lm_eval.models.utils import normalize_gen_kwargs, postprocess_generated_text
from lm_eval.tasks import TaskManager

from lce_core.benchmarks import CellRequest, Prompt, TokenIds, encode, spread, text_answers
from lce_core.benchmarks.short_context.data import TASKS, Folders, read_split
from lce_core.errors import DataError, SpecError, UnavailableError
from lce_core.evaluation.continuations import continuation_log_likelihoods, distinct_inputs

# The harness warns about every data set that does not come from the hub.
logging.getLogger("lm_eval.api.task").setLevel(logging.ERROR)

Answered = dict[str, Any]
"""A question with its requests, responses and metrics, as logged by `lm_eval.evaluate`."""


def answered_questions(
    lm: LM, name: str, folders: Folders, num_samples: int | None
) -> list[tuple[str | None, Answered]]:
    """Evaluate a task and return (MMLU subject or None, answered question) in the data's order.

    `num_samples` questions are evenly spaced over the set; None for all.
    """
    tasks = _load(name, folders)
    wanted = None if num_samples is None else _places(tasks, num_samples)
    if wanted is not None:
        tasks = {task: loaded for task, loaded in tasks.items() if wanted[task]}
    result = lm_eval.evaluate(
        lm=lm, task_dict={"tasks": tasks}, samples=wanted, bootstrap_iters=0, log_samples=True
    )
    subjects = {task: loaded.config.dataset_name for task, loaded in tasks.items()}
    return [
        (subjects[task] if name == "mmlu" else None, question)
        for task in tasks
        for question in sorted(result["samples"][task], key=lambda logged: logged["doc_id"])
    ]


def _load(name: str, folders: Folders) -> dict[str, Any]:
    task = TASKS[name]
    definitions = Path(lm_eval.__file__).parent / "tasks" / task.folder
    manager = TaskManager(include_defaults=False, include_path=str(definitions))
    members = [name] if name in manager.all_subtasks else manager.all_subtasks
    *_, data_set = task.splits.values()
    loaded: dict[str, Any] = {}
    rows: Counter[str] = Counter()
    for member in members:
        subject = None if member == name else manager.task_index[member].cfg["dataset_name"]
        changes = {
            "task": member,
            "custom_dataset": _reader(name, folders, subject, rows),
            "num_fewshot": task.shots,
        }
        if not task.shots:
            # Without this, the harness would read the training split even for zero shots.
            changes["training_split"] = None
        try:
            built = manager.load([{"group": "short_context", "task": [changes]}])
        except (ValueError, TypeError, KeyError, IndexError) as error:
            raise DataError(
                f"data of task {member!r}",
                f"{type(error).__name__}: {error}",
                f"rows with the columns and types of {data_set.origin}",
                "get the data again from there",
            ) from error
        loaded |= built["tasks"]
    published = (task.num_questions, task.num_shown)
    for (split, data), number in zip(reversed([*task.splits.items()]), published, strict=False):
        data.require_rows(folders, split, rows[split], number)
    for found in loaded.values():
        found.set_fewshot_seed(seed=DEFAULT_OTHER_SEED)
    return loaded


def _reader(
    name: str, folders: Folders, subject: str | None, found: Counter[str]
) -> Callable[..., dict[str, Dataset]]:
    task = TASKS[name]

    def read(**_: Any) -> dict[str, Dataset]:
        rows = {split: read_split(task, split, folders, subject) for split in task.splits}
        found.update({split: len(rows[split]) for split in rows})
        return {split: Dataset.from_list(rows[split]) for split in rows}

    return read


def _places(tasks: Mapping[str, Any], num_samples: int) -> dict[str, list[int]]:
    sizes = {name: len(task.eval_docs) for name, task in tasks.items()}
    wanted = spread(sum(sizes.values()), num_samples)
    places, start = {}, 0
    for name, size in sizes.items():
        places[name] = [index - start for index in wanted if start <= index < start + size]
        start += size
    return places


class ExtendedLM(TemplateLM):  # type: ignore[misc]
    """The model of a `CellRequest` with the interface of an lm_eval model.

    Its context is the cell's length. Tasks without a limit have answers of `new_tokens`.
    """

    def __init__(self, request: CellRequest, *, new_tokens: int) -> None:
        super().__init__()
        self.tokenizer = request.tokenizer
        self._request, self._new_tokens = request, new_tokens
        self.num_requests = self.num_cut = 0
        """`num_cut` of the `num_requests` prompts lost their start to fit the length."""
        self.lengths: list[int] = []
        """Tokens of each text that the model read, without generated answers."""

    @property
    def eot_token_id(self) -> int | None:
        return self._request.tokenizer.eos_token_id  # type: ignore[no-any-return]

    @property
    def prefix_token_id(self) -> int:
        """Id of the token that replaces an empty context: BOS, or EOS if there is no BOS token."""
        begin = self._request.tokenizer.bos_token_id
        found = self.eot_token_id if begin is None else begin
        if found is None:
            raise SpecError(
                "an empty context",
                "a tokenizer without beginning- or end-of-sequence token",
                "a tokenizer with one of these, to put before the first scored token",
                "choose tasks whose contexts are not empty",
            )
        return int(found)

    def tok_encode(
        self, string: str, add_special_tokens: bool | None = None, **_: Any
    ) -> list[int]:
        return encode(self._request, string, special_tokens=add_special_tokens is not False)

    def loglikelihood(
        self, requests: list[Any], disable_tqdm: bool = True
    ) -> list[tuple[float, bool]]:
        scores: list[tuple[float, bool]] = super().loglikelihood(requests, disable_tqdm)
        return scores

    def _loglikelihood_tokens(
        self, requests: list[tuple[Any, TokenIds, TokenIds]], **_: Any
    ) -> list[tuple[float, bool]]:
        texts = [self._fitted(context, continuation) for _, context, continuation in requests]
        self.lengths += [len(ids) for ids, _ in distinct_inputs(texts)]
        return continuation_log_likelihoods(
            self._request.model,
            texts,
            batch_tokens=self._request.batch_tokens,
            share_prefixes=self._request.savings,
            report=self._request.report,
        )

    def _encode_pair(self, context: str, continuation: str) -> tuple[TokenIds, TokenIds]:
        # Lists of the ids of 40,000 prompts with ten shots would take over a gigabyte.
        context_ids, ids = super()._encode_pair(context, continuation)
        return np.array(context_ids, dtype=np.int64), np.array(ids, dtype=np.int64)

    def loglikelihood_rolling(self, requests: list[Any], disable_tqdm: bool = True) -> list[float]:
        raise NotImplementedError("no task of this benchmark scores whole texts")

    def generate_until(self, requests: list[Any], disable_tqdm: bool = True) -> list[str]:
        given = requests[0].args[1]
        assert all(one.args[1] == given for one in requests), "a task has one way to decode"
        settings = normalize_gen_kwargs(given, self._new_tokens)
        assert not settings["do_sample"], "tasks decode greedily"
        until, new_tokens = settings["until"], settings["max_gen_toks"]
        encoded = [np.array(self.tok_encode(one.args[0]), dtype=np.int64) for one in requests]
        prompts = [self._kept(ids, new_tokens) for ids in encoded]
        self.lengths += map(len, prompts)
        answers = text_answers(
            self._request,
            [Prompt(ids, "", 0.0) for ids in prompts],
            max_new_tokens=new_tokens,
            complete=lambda text: any(stop in text for stop in until),
        )
        return [postprocess_generated_text(answer, until, None) for answer in answers]

    def _fitted(self, context: TokenIds, continuation: TokenIds) -> tuple[TokenIds, TokenIds]:
        # The harness passes lists instead of arrays for an empty context.
        continuation = np.asarray(continuation, dtype=np.int64)
        return self._kept(np.asarray(context, dtype=np.int64), len(continuation)), continuation

    def _kept(self, context: TokenIds, answer: int) -> TokenIds:
        """Remove the start of a context that exceeds the length with its answer, and count it."""
        limit = self._request.eval_length
        if answer >= limit:
            raise UnavailableError(
                f"eval_length {limit}",
                f"an answer of {answer} tokens of this tokenizer, which leaves no room"
                " for its question",
                f"a length of at least {answer + 1}",
                "evaluate longer contexts",
            )
        self.num_requests += 1
        self.num_cut += len(context) + answer > limit
        return context[-(limit - answer) :]
