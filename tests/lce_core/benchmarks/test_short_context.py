"""The short-context suite against the harness by itself, and what it says of data out of reach."""

from pathlib import Path
from typing import Any

import lm_eval
import numpy as np
import pytest
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks import TaskManager
from tokenizers.processors import TemplateProcessing

from lce_core.benchmarks import BENCHMARKS, Benchmark
from lce_core.benchmarks._data import spread
from lce_core.benchmarks.short_context.data import TASKS
from lce_core.benchmarks.short_context.lm_eval_model import ExtendedLM
from lce_core.benchmarks.short_context.lm_eval_tasks import answered_questions
from lce_core.errors import UnavailableError
from tests.support.cells import TOY, values
from tests.support.data.short_context_rows import made_up, row_of, toy_request


def _benchmark(**parameters: Any) -> Benchmark:
    return BENCHMARKS.parse({"name": "short_context", **parameters}, "test")


def _wrapper(length: int, *, bos: bool = False) -> HFLM:
    """The harness's own model class around the stock model; it needs a token for padding."""
    tokenizer = _tokenizer(bos=bos)
    tokenizer.eos_token = tokenizer.pad_token = "<query-7>"
    # It does not count the last token of an answer.
    return HFLM(
        pretrained=TOY.initialise(2).eval(),
        tokenizer=tokenizer,
        batch_size=1,
        max_length=length - 1,
        backend="causal",
    )


def _tokenizer(*, bos: bool) -> Any:
    tokenizer: Any = TOY.tokenizer(None)
    if bos:
        tokenizer.bos_token = "<query-0>"
        special = [("<query-0>", tokenizer.bos_token_id)]
        template = TemplateProcessing("<query-0> $A", special_tokens=special)
        tokenizer.backend_tokenizer.post_processor = template
    return tokenizer


@pytest.mark.slow
def test_piqa_scores_are_those_of_the_harness_own_wrapper(test_data):
    length = 300  # at which some questions are cut
    piqa = {"piqa": test_data / "piqa"}
    result = _benchmark(profile="tiny").evaluate(toy_request(length, data_folders=piqa))
    theirs = [question for _, question in answered_questions(_wrapper(length), "piqa", piqa, 20)]
    ours = answered_questions(ExtendedLM(toy_request(length), new_tokens=8), "piqa", piqa, 20)
    for (_, mine), their in zip(ours, theirs, strict=True):
        assert mine["prompt_hash"] == their["prompt_hash"]
        np.testing.assert_allclose(mine["filtered_resps"], their["filtered_resps"], rtol=1e-4)
    scores = values(result)
    for metric in ("acc", "acc_norm"):
        assert scores[metric] == np.mean([question[metric] for question in theirs])
    assert scores["accuracy"] == scores["acc"]
    assert scores["cut"] > 0


def _alone(task: str, folder: Path, cache: Path) -> list[dict[str, Any]]:
    member, home = ("mmlu_anatomy", folder / "anatomy") if task == "mmlu" else (task, folder)
    files = {split: str(next(home.glob(f"**/{split}*"))) for split in TASKS[task].splits}
    changes = {
        "task": member,
        "dataset_path": "parquet",
        "dataset_name": None,
        "dataset_kwargs": {"data_files": files, "cache_dir": str(cache)},
    }
    if not TASKS[task].shots:
        changes["training_split"] = None
    definitions = Path(lm_eval.__file__).parent / "tasks" / TASKS[task].folder
    found = lm_eval.simple_evaluate(
        model=_wrapper(2048, bos=True),
        tasks=[{"group": "alone", "task": [changes]}],
        num_fewshot=TASKS[task].shots,
        limit=2,
        bootstrap_iters=0,
        task_manager=TaskManager(include_defaults=False, include_path=str(definitions)),
    )
    samples: list[dict[str, Any]] = found["samples"][member]
    return samples


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
def test_prompts_shots_and_answers_are_those_of_the_harness_alone(task, tmp_path, monkeypatch):
    monkeypatch.setattr("lm_eval.evaluator.add_env_info", lambda storage: None)  # slow
    folders = made_up(task, tmp_path / "data", num_questions=2)
    theirs = _alone(task, tmp_path / "data", tmp_path / "cache")
    request = toy_request(2048, tokenizer=_tokenizer(bos=True))
    end = _tokenizer(bos=True).convert_tokens_to_ids("<query-7>")
    request.model.model.generation_config.eos_token_id = end
    lm = ExtendedLM(request, new_tokens=256)
    ours = answered_questions(lm, task, folders, None)
    asked = [question for subject, question in ours if subject in (None, "anatomy")]
    for mine, their in zip(asked[:2], theirs, strict=True):
        assert mine["arguments"] == their["arguments"]
        if TASKS[task].metric == "exact_match":
            assert mine["filtered_resps"] == their["filtered_resps"]
        else:
            np.testing.assert_allclose(mine["filtered_resps"], their["filtered_resps"], rtol=1e-4)
        for metric in mine["metrics"]:
            assert mine[metric] == pytest.approx(their[metric], rel=1e-4)


def test_data_out_of_reach_is_named_with_its_origin(tmp_path):
    for task, plan in TASKS.items():
        (name,) = {data_set.name for data_set in plan.splits.values()}
        with pytest.raises(
            UnavailableError, match=rf"'{name}': got no folder.*{plan.repo}.*{name}=FOLD"
        ):
            _benchmark().digest(task, {})
        with pytest.raises(UnavailableError, match=rf"'{name}': .*: got no .*{plan.repo}"):
            _benchmark().evaluate(toy_request(task=task, data_folders={name: tmp_path}))


def test_questions_are_asked_in_order_all_or_evenly_spread(tmp_path):
    folders = made_up("piqa", tmp_path, num_questions=5)
    result = _benchmark(profile="clean").evaluate(toy_request(data_folders=folders))
    rows = [row_of("piqa", number) for number in range(5)]
    answers = [(row["sol1"], row["sol2"])[row["label"]] for row in rows]
    assert [sample.reference for sample in result.samples] == answers
    for row, sample in zip(rows, result.samples, strict=True):
        assert sample.prediction in (row["sol1"], row["sol2"])
        assert sample.score == (sample.prediction == sample.reference)
        assert sample.num_prompt_tokens == len(f"Question: {row['goal']}\nAnswer:".encode())
    assert spread(10, 4) == [0, 2, 5, 7]
    assert spread(3, 20) == [0, 1, 2]


def test_without_the_harness_cells_are_unavailable(monkeypatch):
    monkeypatch.setattr("lce_core.benchmarks.short_context.find_spec", lambda name: None)
    reason = _benchmark().unavailable(TOY, "piqa", 1024)
    assert reason is not None
    assert "pip install 'lce[short-context]'" in reason
    with pytest.raises(UnavailableError, match="pip install"):
        _benchmark().evaluate(toy_request())
