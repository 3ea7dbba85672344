"""The short-context suite against the harness by itself, its metrics against YaRN's result files,
and what it says of data out of reach."""

from collections.abc import Iterator
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
from lce_core.benchmarks.short_context.harness import ExtendedLM, answered_questions
from lce_core.errors import SpecError, UnavailableError
from tests.support.cells import TOY, benchmark, values
from tests.support.data.short_context_rows import instances, made_up, row_of, subjects, toy_request


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
        ((name, origin),) = {(data_set.name, data_set.origin) for data_set in plan.splits.values()}
        with pytest.raises(
            UnavailableError, match=rf"'{name}': got no folder.*{origin}.*{name}=FOLD"
        ):
            _benchmark().digest(task, {})
        with pytest.raises(UnavailableError, match=rf"'{name}': .*: got no .*{origin}"):
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


def test_requests_that_the_model_cannot_answer_are_refused():
    lm = ExtendedLM(toy_request(20), new_tokens=8)
    with pytest.raises(SpecError, match="without beginning- or end-of-sequence token"):
        lm.loglikelihood(instances("loglikelihood", [("", "a")]))
    with pytest.raises(UnavailableError, match="at least 31"):
        lm.loglikelihood(instances("loglikelihood", [("a", "b" * 30)]))
    with pytest.raises(SpecError, match="at least 1 token of each"):
        lm.loglikelihood(instances("loglikelihood", [("a", "")]))


MMLU = (
    "abstract_algebra:36/100 anatomy:58/135 astronomy:59/152 business_ethics:39/100 "
    "clinical_knowledge:106/265 college_biology:61/144 college_chemistry:36/100 "
    "college_computer_science:34/100 college_mathematics:23/100 college_medicine:60/173 "
    "college_physics:23/102 computer_security:59/100 conceptual_physics:95/235 "
    "econometrics:32/114 electrical_engineering:60/145 elementary_mathematics:94/378 "
    "formal_logic:38/126 global_facts:25/100 high_school_biology:126/310 "
    "high_school_chemistry:65/203 high_school_computer_science:41/100 "
    "high_school_european_history:103/165 high_school_geography:76/198 "
    "high_school_government_and_politics:108/193 high_school_macroeconomics:143/390 "
    "high_school_mathematics:69/270 high_school_microeconomics:85/238 high_school_physics:49/151 "
    "high_school_psychology:290/545 high_school_statistics:60/216 high_school_us_history:107/204 "
    "high_school_world_history:140/237 human_aging:116/223 human_sexuality:61/131 "
    "international_law:70/121 jurisprudence:54/108 logical_fallacies:65/163 "
    "machine_learning:41/112 management:41/103 marketing:152/234 medical_genetics:52/100 "
    "miscellaneous:459/783 moral_disputes:163/346 moral_scenarios:213/895 nutrition:137/306 "
    "philosophy:171/311 prehistory:155/324 professional_accounting:101/282 "
    "professional_law:533/1534 professional_medicine:106/272 professional_psychology:276/612 "
    "public_relations:60/110 security_studies:101/245 sociology:108/201 us_foreign_policy:64/100 "
    "virology:73/166 world_religions:108/171"
)
"""Subject: right answers / questions, from the shares and standard errors of YaRN's result files
(github.com/jquesnelle/yarn@995db5b, data/Yarn-Llama-2-7b-64k-*.json)."""
YARN_TABLE_3 = {"arc_challenge": 52.3, "hellaswag": 78.8, "mmlu": 42.5, "truthfulqa_mc2": 38.2}
"""Llama 2 7B with YaRN at scale 16."""


def published() -> dict[str, tuple[int, int]]:
    pairs = (entry.split(":") for entry in MMLU.split())
    return {name: tuple(map(int, counts.split("/"))) for name, counts in pairs}


def as_asked() -> Iterator[tuple[str, dict[str, Any]]]:
    """The published answers as the harness logs questions."""
    for subject, (right, questions) in published().items():
        for number in range(questions):
            yield (
                subject,
                {
                    "arguments": [("Answer:", " A"), ("Answer:", " B")],
                    "filtered_resps": [(-1.0, True), (-2.0, False)],
                    "target": int(number >= right),
                    "metrics": ["acc"],
                    "acc": float(number < right),
                },
            )


def test_mmlu_is_the_mean_of_its_subjects_as_in_yarns_table(monkeypatch):
    assert sorted(published()) == subjects()
    assert sum(questions for _, questions in published().values()) == TASKS["mmlu"].num_questions

    def answered(lm: Any, *_: Any) -> list[tuple[str, dict[str, Any]]]:
        lm.num_requests = TASKS["mmlu"].num_questions
        return list(as_asked())

    module = "lce_core.benchmarks.short_context.harness"
    monkeypatch.setattr(f"{module}.answered_questions", answered)
    result = benchmark("short_context").evaluate(toy_request(task="mmlu"))
    scores = {score.metric: score for score in result.scores}
    assert round(100 * scores["accuracy"].value, 1) == YARN_TABLE_3["mmlu"]
    assert scores["acc_macro"].value == scores["accuracy"].value
    assert round(100 * scores["acc_macro"].value, 2) == 42.52
    assert round(100 * scores["acc"].value, 2) == 41.87
    assert {score.num_samples for score in scores.values()} == {14_042}
    assert scores["accuracy"].ci_low < scores["accuracy"].value < scores["accuracy"].ci_high


@pytest.mark.parametrize(
    ("task", "shots", "published"),
    [
        ("arc_challenge", 25, {"acc": 0.49402730375426623, "acc_norm": 0.523037542662116}),
        ("hellaswag", 10, {"acc": 0.5888269269069907, "acc_norm": 0.788388767177853}),
        ("truthfulqa_mc2", 0, {"mc1": 0.2533659730722154, "acc": 0.38227179754259044}),
    ],
)
def test_the_metric_of_a_task_is_the_one_in_yarns_table(task, shots, published):
    fitting = [
        metric for metric, value in published.items() if round(100 * value, 1) == YARN_TABLE_3[task]
    ]
    assert fitting == [TASKS[task].metric]
    assert TASKS[task].shots == shots
