"""Cells that the contract of benchmarks asks: an example in a profile on stand-in data.

The model is the toy Llama with random weights; prompts in words are read by a small tokenizer with
a token that begins a text.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from lce_core.benchmarks import (
    Benchmark,
    CellRequest,
    DataSet,
    Prompt,
    PromptBenchmark,
)
from lce_core.contracts.line_answers import make_words_likely
from lce_core.contracts.plugins import built
from lce_core.contracts.toy_text import STORY, Streams, streams
from lce_core.errors import UnavailableError
from lce_core.extension.extended_model import ExtendedModel
from lce_core.extension.extending import extend
from lce_core.methods import METHODS
from lce_core.models import MODELS

Data = Callable[[Iterable[DataSet]], Mapping[str, Path]]
"""Gives the folders of data sets, by their names."""
TOY = MODELS.load("toy_llama")()
LENGTHS = (128, 260, 700, 1200, 2500, 5000)
"""Tokens of context to try, shortest first; a profile has to be able to run at one of them."""
_FITTING: dict[tuple[Any, ...], int] = {}
"""The shortest of these for a benchmark, task and tokenizer."""


@dataclass(frozen=True)
class Case:
    """A benchmark with parameters to try in one profile."""

    plugin: type[Benchmark]
    example: Mapping[str, Any]
    profile: str
    data: Data
    """Where the data sets are that it reads."""

    @functools.cached_property
    def benchmark(self) -> Any:
        """The benchmark itself."""
        return built(self.plugin, {**self.example, "profile": self.profile})

    @property
    def in_words(self) -> bool:
        """Whether its prompts are words rather than key tokens."""
        return bool(getattr(self.benchmark.form, "in_words", True))


def cases(plugin: type[Benchmark], data: Data) -> list[Case]:
    """Every example in every profile that takes it; each profile takes at least one."""
    found = []
    for profile in plugin.forms:
        tried = [Case(plugin, example, profile, data) for example in plugin.examples]
        fit = [case for case in tried if possible(case)]
        assert fit, f"no example fits profile {profile}: give one in EXAMPLES"
        found += fit
    return found


def possible(case: Case) -> bool:
    """Whether the profile takes the example."""
    try:
        return bool(case.benchmark)
    except ValueError:
        return False


def asked_tasks(case: Case) -> list[str]:
    """All tasks of the case."""
    return list(case.benchmark.tasks())


def evaluated_tasks(case: Case) -> list[str]:
    """The first task and the last, which a model is asked."""
    tasks = asked_tasks(case)
    return [tasks[0]] if len(tasks) == 1 else [tasks[0], tasks[-1]]


def request_for(case: Case, task: str, **changes: Any) -> CellRequest:
    """A cell of the shortest length that holds the task and is filled by it.

    Raises:
      UnavailableError: none of `LENGTHS` can, or a data set is not there.
    """
    request = CellRequest(
        model=plain_model(),
        tokenizer=words_tokenizer() if case.in_words else TOY.tokenizer(None),
        base_model=TOY,
        held_out=held_out(in_words=case.in_words),  # type: ignore[arg-type]
        task=task,
        eval_length=LENGTHS[0],
        seed=0,
        data_folders=case.data(case.benchmark.reads(task)),
    )
    request = replace(request, **changes)
    for data_set in case.benchmark.reads(task):
        data_set.files(request.data_folders)
    reasons: dict[str, None] = {}
    place = (case.benchmark.__class__, case.benchmark.model_dump_json(), task, request.tokenizer)
    if place in _FITTING:
        return replace(request, eval_length=_FITTING[place])
    for length in LENGTHS:
        sized = replace(request, eval_length=length)
        missing = case.benchmark.unavailable(TOY, task, length)
        if missing is not None:
            reasons[missing] = None
            continue
        try:
            if isinstance(case.benchmark, PromptBenchmark):
                case.benchmark.require_filled(sized, fresh(case, sized))
        except UnavailableError as error:
            reasons[str(error)] = None
        else:
            _FITTING[place] = length
            return sized
    raise UnavailableError(
        task,
        f"{LENGTHS[-1]} tokens that hold no prompt",
        "a length that holds one",
        "; ".join(reasons),
    )


def roomy(request: CellRequest) -> CellRequest:
    """The same cell at a length at which prompts are mostly text around what is hidden."""
    return replace(request, eval_length=3 * request.eval_length)


def fresh(case: Case, request: CellRequest) -> Sequence[Prompt]:
    """Prompts built anew, past the cache."""
    form, benchmark = case.benchmark.form, case.benchmark
    prompts: Sequence[Prompt] = (
        benchmark.build(request) if case.in_words else form.build(benchmark, request)
    )
    return prompts


def answer_tokens(case: Case, task: str) -> int:
    """Tokens of the length that an answer takes."""
    if not case.in_words:
        return 1
    return int(case.benchmark.new_tokens(task))


def alike(one: Sequence[Prompt], other: Sequence[Prompt]) -> bool:
    """Whether two rows of prompts are the same."""
    return len(one) == len(other) and all(
        np.array_equal(a.ids, b.ids) and a.reference == b.reference and a.depth == b.depth
        for a, b in zip(one, other, strict=True)
    )


def replace_benchmark(case: Case, benchmark: Any) -> Case:
    """The case with another instance in place of its own."""
    other = replace(case)
    other.__dict__["benchmark"] = benchmark
    return other


def occurrences(prompt: Prompt, request: CellRequest, *, in_words: bool) -> list[float]:
    """Where the reference can be read, each as a share of the prompt."""
    if not in_words:
        key = request.tokenizer.convert_tokens_to_ids(prompt.reference)
        return [int(place) / len(prompt.ids) for place in np.flatnonzero(prompt.ids == key)]
    text = str(request.tokenizer.decode(prompt.ids, skip_special_tokens=True))
    pattern = rf"(?<!\w){re.escape(prompt.reference)}(?!\w)"
    return [match.start() / len(text) for match in re.finditer(pattern, text)]


def gold_answer(prompt: Prompt) -> str:
    """An answer that gives all references."""
    return " " + ", ".join(getattr(prompt, "references", ()) or (prompt.reference,))


def score_of(case: Case, task: str, prompts: Sequence[Prompt], answers: list[str]) -> list[float]:
    """What the answers are worth."""
    return [sample.score for sample in case.benchmark.scored(task, prompts, answers)]


@functools.cache
def words_tokenizer() -> PreTrainedTokenizerFast:
    """Byte-level with merges, and a token that begins a text; fits the toy model's vocabulary."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=TOY.shape.vocab_size - 8,
        special_tokens=["<s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator([STORY] * 4, trainer)
    backend.post_processor = processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 0)])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<s>", clean_up_tokenization_spaces=False
    )


@functools.cache
def held_out(*, in_words: bool) -> Streams:
    """Held-out text of two domains: a story for prompts in words, else random bytes."""
    if not in_words:
        return streams(3000)
    ids = words_tokenizer().encode(STORY * 120, add_special_tokens=False)
    text = np.array(ids, dtype=np.uint32)
    return Streams({"code": text, "prose": text[7:]})


@functools.cache
def plain_model() -> ExtendedModel:
    """The toy model with random weights."""
    return extend(TOY.initialise(2).eval(), TOY, METHODS.load("none")(), target=512)


@functools.cache
def wordy_model(method: str) -> ExtendedModel:
    """The toy model in float64, which likes to answer in lines."""
    model = extend(TOY.initialise(2).eval().double(), TOY, METHODS.load(method)(), target=512)
    make_words_likely(model)
    return model


@functools.cache
def uniform_model() -> ExtendedModel:
    """The toy model with all logits equal."""
    model = TOY.initialise(2).eval()
    model.get_output_embeddings().weight.data.zero_()
    return extend(model, TOY, METHODS.load("none")(), target=512)
