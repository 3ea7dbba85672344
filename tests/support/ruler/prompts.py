"""What the tests of RULER share: two tokenizers, stand-in data sets, requests and prompts."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from lce_core.benchmarks import BENCHMARKS, Benchmark, CellRequest
from lce_core.benchmarks._prompted.retrieval import Prompt
from lce_core.benchmarks.ruler._niah import NEEDLE
from lce_core.benchmarks.ruler._vocabulary import plain_words
from lce_core.contracts.benchmark_cases import STORY
from lce_core.models import MODELS
from tests.support.byte_level import byte_level
from tests.support.data.subsets import state_rows

TOY = MODELS.parse({"name": "toy_llama"}, "test")
BYTES = TOY.tokenizer(None)
BPE = byte_level([STORY, NEEDLE, *plain_words()[:400]], 600, special=())


def write_data(
    root: Path, essays: str, squad: dict[str, Any], hotpot: list[Any]
) -> dict[str, Path]:
    """Write essays, SQuAD and HotpotQA in their published form; return their folders."""
    files = {
        "essays": ("a.txt", essays),
        "squad": ("dev-v2.0.json", json.dumps(squad)),
        "hotpotqa": ("hotpot_dev_distractor_v1.json", json.dumps(hotpot)),
    }
    for name, (file, text) in files.items():
        (root / name).mkdir()
        (root / name / file).write_text(text, encoding="utf-8")
    paragraphs = sum(len(article["paragraphs"]) for article in squad["data"])
    state_rows(root / "squad", {files["squad"][0]: paragraphs})
    state_rows(root / "hotpotqa", {files["hotpotqa"][0]: len(hotpot)})
    return {name: root / name for name in files}


def stand_in_data(root: Path) -> dict[str, Path]:
    return write_data(root, STORY * 600, _squad(), _hotpot())


def _squad() -> dict[str, Any]:
    def paragraph(article: int, number: int) -> dict[str, Any]:
        answer = f"code {article}{number}"
        asked = {
            "question": f"Which code has part {number} of article {article}?",
            "answers": [{"text": answer}, {"text": answer.upper()}],
            "is_impossible": False,
        }
        no_answer = {"question": "Unknown?", "answers": [], "is_impossible": True}
        return {"context": f"Part {number} has {answer}.", "qas": [asked, no_answer]}

    articles = [
        {"title": f"Article {a}", "paragraphs": [paragraph(a, n) for n in range(4)]}
        for a in range(12)
    ]
    return {"version": "v2.0", "data": articles}


def _hotpot() -> list[dict[str, Any]]:
    return [
        {
            "question": f"What joins town {row} and river {row}?",
            "answer": f"bridge {row}",
            "context": [
                [f"Town {row}-{part}", ["It has a wall. ", f"It has gate {row}."]]
                for part in range(10)
            ],
            "supporting_facts": [[f"Town {row}-3", 0], [f"Town {row}-7", 1]],
        }
        for row in range(8)
    ]


def ruler(**parameters: Any) -> Benchmark:
    return BENCHMARKS.parse({"name": "ruler", **parameters}, "test")


def request_for(task: str, length: int, folders: dict[str, Path], **changes: Any) -> CellRequest:
    request = CellRequest(
        model=None,  # type: ignore[arg-type]
        tokenizer=BPE,
        base_model=TOY,
        held_out=None,  # type: ignore[arg-type]
        task=task,
        eval_length=length,
        seed=0,
        data_folders=folders,
    )
    return replace(request, **changes)


def prompts_of(request: CellRequest, **parameters: Any) -> tuple[Prompt, ...]:
    parameters = {"num_samples": 4, **parameters}
    return ruler(**parameters).prompts(request)  # type: ignore[attr-defined,no-any-return]


def text_of(prompt: Prompt) -> str:
    return str(BPE.decode(prompt.ids))
