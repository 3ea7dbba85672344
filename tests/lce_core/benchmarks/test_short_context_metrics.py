"""The short-context suite's metrics against YaRN's result files and the tables made of them.

Figures: github.com/jquesnelle/yarn@995db5b, data/Yarn-Llama-2-7b-64k-*.json. They give a share and
its standard error; right answers and questions of a subject follow from the two.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from lce_core.benchmarks.short_context.data import TASKS
from tests.support.cells import benchmark
from tests.support.data.short_context_rows import subjects, toy_request

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
"""Subject: right answers / questions."""
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

    module = "lce_core.benchmarks.short_context.lm_eval_tasks"
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
