"""Shipped studies in small: the same methods, benchmarks and tasks on tiny models and little text.

`shrunk` divides contexts and rows so that the base model has 128 tokens of context, keeps the
shortest and the longest window, and trains one step. Studies of the toy model keep their lengths.
"""

import ast
import json
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
import yaml
from transformers import PreTrainedTokenizerFast

from flows.settings import study_path
from lce_core.benchmarks import BENCHMARKS, TextBenchmark
from lce_core.contracts.benchmark_cases import STORY
from lce_core.extension.insertion import reserve_token
from lce_core.methods import METHODS
from lce_core.models import MODELS, LanguageModel
from lce_core.study.plan import StudyPlan
from lce_core.study.spec import StudySpec
from tests.support.byte_level import byte_level
from tests.support.data.fixture_data import fixture_folders
from tests.support.data.subsets import state_rows
from tests.support.repository import ROOT

CONTEXT = 128
"""Context of the tiny base models."""
NEAR, FAR = 1152, 1280
"""Lengths of prompts that were within the base model's context, and beyond it. They are not
divided: examples and questions are as long for a small model as for a large one."""
LIMIT = 384
"""The same for prompts that need not fill their length."""
VOCABULARY = 2048
TINY = "tiny_"
_LEAST: dict[str, int] = {
    **dict.fromkeys(("num_samples", "num_questions", "num_contexts", "trials"), 1),
    "stride": 512,
    "last": 32,
    "bin_width": 64,
    "min_document_tokens": 64,
}
"""What a benchmark takes for a parameter of that name, if it has one."""
_WINDOWS: dict[str, dict[str, int]] = {
    "self_extend": {"window": 64, "group": 64},
    "rerope": {"window": 64},
    "lm_infinite": {"window": 64, "num_global": 10},
    "streaming_llm": {"window": 60, "num_sinks": 4},
    "landmark": {"block": 8, "train_length": 64},
}
"""Lengths among a method's parameters, for a context of 128 tokens or more."""
_STAGES = {"abf_multi_stage": 3}
"""Runs of a method that has several, each of which takes a step at least."""


def shrunk(name: str) -> dict[str, Any]:
    """The study file of this name for tiny forms of its base models, as a mapping."""
    study: dict[str, Any] = yaml.safe_load(study_path(name).read_text(encoding="utf-8"))
    base_models = [_mapping(entry)["name"] for entry in study["base_models"]]
    if base_models == ["toy_llama"]:
        return _brief(study)
    study.pop("expects", None)  # they name lengths of the whole study
    trained = max(MODELS.load(base).geometry.trained_context for base in base_models)
    factor = trained // CONTEXT
    methods = [_mapping(entry) for entry in study["methods"]]
    rows = [
        study["target_context"],
        *(m["target_context"] for m in methods if "target_context" in m),
    ]
    # A whole number of the rows of every method, which are powers of two times one another.
    step = max(rows) // factor
    stages = max(_STAGES.get(method["name"], 1) for method in methods)
    run = {"tokens_per_step": step, "warmup_steps": 1, "precision": "fp32"}
    trains = any(method.get("tuned") for method in methods)
    training = {"training": {**study["training"], **run}} if trains else {}
    return {
        **study,
        "study": f"small-{study['study']}",
        "target_context": study["target_context"] // factor,
        "train_tokens": stages * step,
        "base_models": [f"{TINY}{base}" for base in base_models],
        "corpus": {**_mapping(study["corpus"]), "held_out_percent": 40.0},
        **training,
        "upsampling": {"long_document_tokens": 64},
        "methods": [_method(entry, run, factor) for entry in methods],
        "benchmarks": [
            _benchmark(_mapping(entry), trained, 32 * number)
            for number, entry in enumerate(study["benchmarks"])
        ],
        "evaluation": {"held_out_tokens": 2048},
        "seeds": study["seeds"][:1],
    }


def _brief(study: dict[str, Any]) -> dict[str, Any]:
    """Return a study of the toy model with one seed, few steps, prompts and little text.

    Lengths and expectations stay.
    """
    step = 2 * study["target_context"]
    methods = []
    for entry in map(_mapping, study["methods"]):
        own = {"train_tokens": 2 * step} if "train_tokens" in entry else {}
        if "training" in entry:
            own["training"] = {**entry["training"], "tokens_per_step": step}
        methods.append({**entry, **own})
    corpus = {"name": "jsonl_folder", "domain_names": ["code", "prose"], "held_out_percent": 40.0}
    return {
        **study,
        "study": f"small-{study['study']}",
        "train_tokens": 5 * step,  # a stage with a fifth of them takes a step
        "base_models": [{"name": "toy_llama", "steps": 20}],
        "corpus": corpus,
        "training": {**study["training"], "tokens_per_step": step},
        "methods": methods,
        "benchmarks": [
            {
                **entry,
                **{key: 1 for key in ("num_samples", "num_contexts", "trials") if key in entry},
            }
            for entry in map(_mapping, study["benchmarks"])
        ],
        "evaluation": {"held_out_tokens": 4096},
        "seeds": study["seeds"][:1],
    }


def _method(entry: dict[str, Any], run: dict[str, Any], factor: int) -> dict[str, Any]:
    own, train_tokens = {**entry, **_WINDOWS.get(entry["name"], {})}, run["tokens_per_step"]
    of_method = METHODS.load(entry["name"]).model_fields
    for key in ("target_context", "train_length"):
        if key in entry and key not in of_method:
            own[key] = entry[key] // factor
    if "training" in entry:
        own |= {"training": {**entry["training"], **run}, "train_tokens": train_tokens}
    if "train_tokens" in entry:  # so that it stays another run than that of an entry without
        own["train_tokens"] = 2 * train_tokens
    return own


def _benchmark(entry: dict[str, Any], trained: int, more: int) -> dict[str, Any]:
    small, kind = dict(entry), BENCHMARKS.load(entry["name"])
    small |= {key: value for key, value in _LEAST.items() if key in kind.model_fields}
    if issubclass(kind, TextBenchmark):
        ends = {min(entry["lengths"]), max(entry["lengths"])}
        least = 2 * _LEAST["last"]  # a window holds more than the tokens that are scored
        small["lengths"] = sorted({max(least, end * CONTEXT // trained) for end in ends})
        small["max_tokens"] = small["lengths"][-1] + 2 * _LEAST["stride"]
        if "min_document_tokens" in small:  # truncated documents have to fill every window
            small["min_document_tokens"] = small["lengths"][-1]
        return small
    length = NEAR if max(entry["lengths"]) <= trained else FAR
    if not getattr(kind, "fills_length", False):
        length = LIMIT
        if entry["name"] == "many_shot":  # the other forms do not cut a prompt that is longer
            small["profile"] = "faithful"
    # Entries with other lengths of the same task stay apart.
    return {**small, "lengths": [length + more]}


def _mapping(entry: Any) -> dict[str, Any]:
    return {"name": entry} if isinstance(entry, str) else dict(entry)


_PLUGIN = '''"""A shipped base model, narrower, shallower, with a context of {context} tokens."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import ClassVar

from lce_core.models import MODELS, HubAddress, ModelShape
from lce_core.rope import RopeGeometry

_LARGE = MODELS.load("{name}")
VERSION, SOURCE, EVIDENCE = 1, _LARGE.source, _LARGE.evidence


class Tiny(_LARGE):
    """{name} in small."""

    geometry: ClassVar[RopeGeometry] = replace(
        _LARGE.geometry,
        head_dim=_LARGE.geometry.head_dim // 8,
        rotary_dim=_LARGE.geometry.rotary_dim // 8,
        num_heads=4,
        num_kv_heads=max(1, 4 * _LARGE.geometry.num_kv_heads // _LARGE.geometry.num_heads),
        trained_context={context},
    )
    shape: ClassVar[ModelShape] = replace(
        _LARGE.shape,
        num_layers=2,
        hidden_size=_LARGE.geometry.head_dim // 2,
        intermediate_size=64,
        vocab_size={vocabulary},
    )
    hub: ClassVar[HubAddress | None] = None

    def config(self):
        """The shipped configuration, whose special tokens are those of the small tokenizer."""
        config = super().config()
        config.bos_token_id, config.eos_token_id = 1, 2
        return config

    def tokenizer(self, folder):
        """The folder's tokenizer, read once for hundreds of cells."""
        return _tokenizer(folder)


@cache
def _tokenizer(folder):
    return _LARGE().tokenizer(folder)


MODEL = Tiny
'''
"""The file of the plug-in `tiny_NAME`."""


def tiny_models(names: Sequence[str], plugins: Path, weights: Path) -> dict[str, Path]:
    """Writes plug-ins `tiny_NAME` below `plugins` and folders of their weights below `weights`.

    The folders come back by the plug-ins' names, for `model_folders`.
    """
    (plugins / "models").mkdir(parents=True, exist_ok=True)
    there = MODELS.names()  # another test's, which are the same
    for name in (name for name in names if f"{TINY}{name}" not in there):
        values = {"name": name, "context": CONTEXT, "vocabulary": VOCABULARY}
        file = plugins / "models" / f"{TINY}{name}.py"
        file.write_text(_PLUGIN.format(**values), encoding="utf-8")
    MODELS.add_folder(plugins / "models")
    tokenizer = small_tokenizer()
    folders = {}
    for name in names:
        base_model = MODELS.load(f"{TINY}{name}")()
        folders[base_model.plugin_name] = folder = weights / name
        _random(base_model).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    return folders


def published_weights(study: StudySpec, folder: Path) -> dict[str, Path]:
    """Random weights for each `checkpoint` of a small study, by name, for `model_folders`."""
    (base_model, *_), folders = study.base_models, {}
    for variant in study.methods:
        if variant.checkpoint is not None:
            folders[variant.checkpoint] = folder / variant.checkpoint
            model = _random(base_model)
            if variant.method.insertion(base_model.geometry):
                reserve_token(model)
            model.save_pretrained(folders[variant.checkpoint])
    return folders


def _random(base_model: LanguageModel) -> Any:
    """Random weights, under which every text is likely to end after its next token.

    A random model would go on to the last token that each of thousands of answers may take.
    """
    model = base_model.initialise(0)
    with torch.no_grad():
        model.get_input_embeddings().weight[:, 0] = 1.0
        model.get_output_embeddings().weight[2, 0] = 1.0
    return model


@cache
def small_tokenizer() -> PreTrainedTokenizerFast:
    """BPE trained on the texts of the benchmarks, so that prompts take few tokens.

    Like Llama's it begins every text with <s>, which is token 1; </s> is token 2.
    """
    sources = sorted((ROOT / "lce_core" / "benchmarks").rglob("*.py"))
    texts = (text for source in sources for text in _texts(source))
    return byte_level([STORY * 50, *texts], VOCABULARY, special=("<unk>", "<s>", "</s>"))


def _texts(source: Path) -> Iterator[str]:
    """The strings of a module without its docstrings, whose wording changes nobody's tokens."""
    nodes = list(ast.walk(ast.parse(source.read_text(encoding="utf-8"))))
    docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        text = node.value if isinstance(node, ast.Constant) and id(node) not in docstrings else None
        if isinstance(text, str):
            yield text


def study_folders(study: StudySpec, root: Path) -> dict[str, Path]:
    """A stand-in of the study's corpus and of every data set that its benchmarks read."""
    sets = {
        data_set.name: data_set
        for entry in study.benchmarks
        for task in entry.tasks
        for data_set in entry.benchmark.reads(task)  # type: ignore[attr-defined]
    }
    folders = fixture_folders(sets.values(), root)
    for name in {"pg19", "proof_pile", "govreport"} & set(
        folders
    ):  # longer than the longest window
        (folders[name] / "long.txt").write_text(STORY * 400, encoding="utf-8")
    if "trec" in folders:
        _multiply(folders["trec"], "train.txt", 1000)
    if "squad" in folders:
        _lengthen(folders["squad"] / "dev-v2.0.json")
    corpus = study.corpus.identity()
    if corpus["name"] == "jsonl_folder":
        name = corpus.get("folder", "text")
        folders[name] = root / name
        folders[name].mkdir(exist_ok=True)
        lines = [
            {
                "text": f"Document {number} of {domain}. {STORY * 20}",
                corpus.get("domain_field", "domain"): domain,
            }
            for domain in study.corpus.domains()
            for number in range(20)
        ]
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (folders[name] / "documents.jsonl").write_text(text, encoding="utf-8")
    elif corpus["name"] == "text_folder":
        folders[corpus["folder"]] = root / corpus["folder"]
        folders[corpus["folder"]].mkdir()
        for number in range(20):
            file = folders[corpus["folder"]] / f"{number}.txt"
            file.write_text(f"Document {number}. {STORY * 100}", encoding="utf-8")
    return folders


def _multiply(trec: Path, name: str, rows: int) -> None:
    """Gives the examples that the largest number of shots needs."""
    lines = (trec / name).read_text(encoding="latin-1").splitlines()
    more = (f"{lines[i % len(lines)]} No {i}" for i in range(len(lines), rows))
    text = "".join(f"{line}\n" for line in (*lines, *more))
    (trec / name).write_text(text, encoding="latin-1")
    state_rows(trec, {name: max(rows, len(lines))})


def _lengthen(squad: Path) -> None:
    """Makes the paragraphs fill the lengths that are asked of qa_1."""
    data = json.loads(squad.read_text(encoding="utf-8"))
    for article in data["data"]:
        for paragraph in article["paragraphs"]:
            if len(paragraph["context"]) < len(STORY):
                paragraph["context"] += f" {STORY * 2}".rstrip()
    squad.write_text(json.dumps(data), encoding="utf-8")


def asked(plan: StudyPlan) -> set[tuple[str, bool, str, str]]:
    return {(cell.method, cell.frozen, cell.benchmark, cell.task) for cell in plan.cells}
