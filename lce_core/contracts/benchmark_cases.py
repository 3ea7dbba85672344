"""Small evaluations (cases) on which `lce check` tests a benchmark.

The model is the toy Llama with random weights. The held-out text is synthetic: random bytes, or a
story for prompts made of sentences, which use a small tokenizer with a beginning-of-text token.
"""

import functools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from lce_core.benchmarks import Benchmark, CellRequest, DataSet, Prompt, PromptBenchmark
from lce_core.contracts.plugins import built
from lce_core.errors import UnavailableError
from lce_core.extension.extended_model import ExtendedModel
from lce_core.extension.extending import extend
from lce_core.methods import METHODS
from lce_core.models import MODELS
from lce_core.models.toy_llama import ToyLlama, byte_tokenizer

STORY = "A ship left the port. Rain fell on the hills. Nobody knew why the lamp was lit. "


@dataclass(frozen=True)
class Streams:
    """Held-out text in memory, with the interface that benchmarks use: token ids by domain."""

    tokens: dict[str, NDArray[np.uint32]]

    @property
    def domains(self) -> tuple[str, ...]:
        return tuple(self.tokens)

    def stream(self, domain: str) -> NDArray[np.uint32]:
        return self.tokens[domain]

    def document_starts(self, domain: str) -> NDArray[np.int64]:
        """Return the index of each document's first token (documents,): one every 1,500 tokens."""
        return np.arange(0, len(self.tokens[domain]), 1500)


def streams(size: int = 20_000) -> Streams:
    """Return held-out text of two domains with `size` random bytes each, equal in all calls."""
    rng = np.random.default_rng(11)
    code, prose = (rng.integers(256, size=size).astype(np.uint32) for _ in range(2))
    return Streams({"code": code, "prose": prose})


Data = Callable[[Iterable[DataSet]], Mapping[str, Path]]
"""Function that returns, by name, the folder of each given data set that is on this machine."""
TOY = MODELS.load("toy_llama")()
_FIRST_WORD = 256
LENGTHS = (128, 260, 700, 1200, 2500, 5000)
"""Context lengths in tokens to try, shortest first; every task must run at one of them."""
_FITTING: dict[tuple[Any, ...], int] = {}
"""Shortest of `LENGTHS` that fits prompts, by benchmark, parameters, task and tokenizer."""


@dataclass(frozen=True)
class Case:
    """A benchmark with one entry of its EXAMPLES, in one profile, such as tiny or faithful."""

    plugin: type[Benchmark]
    example: Mapping[str, Any]
    profile: str
    data: Data

    @functools.cached_property
    def benchmark(self) -> Any:
        return built(self.plugin, {**self.example, "profile": self.profile})

    @property
    def in_words(self) -> bool:
        """False if key tokens are hidden in held-out text."""
        return bool(getattr(self.benchmark, "in_words", True))


def cases(plugin: type[Benchmark], data: Data) -> list[Case]:
    """Return the valid combinations of profiles and EXAMPLES, at least one per profile."""
    found = []
    for profile in plugin.profiles:
        tried = [Case(plugin, example, profile, data) for example in plugin.examples]
        fit = [case for case in tried if _is_valid(case)]
        assert fit, f"no example fits profile {profile}: give one in EXAMPLES"
        found += fit
    return found


def _is_valid(case: Case) -> bool:
    try:
        return bool(case.benchmark)
    except ValueError:
        return False


def evaluated_tasks(case: Case) -> list[str]:
    """Return the first and the last task, the only ones for which checks run a model."""
    tasks = case.benchmark.tasks()
    return [*dict.fromkeys((tasks[0], tasks[-1]))]


def request_for(case: Case, task: str, **changes: Any) -> CellRequest:
    """Return a cell, with `changes`, at the shortest of `LENGTHS` that fits the task's prompts."""
    request = CellRequest(
        model=toy_model(),
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
        f"no prompt at any length up to {LENGTHS[-1]} tokens ({'; '.join(reasons)})",
        f"prompts that fit one of the lengths {', '.join(map(str, LENGTHS))}",
        "shorten the prompts by parameters in EXAMPLES",
    )


def requests(
    case: Case, change: Callable[[CellRequest], CellRequest] = lambda request: request
) -> Iterator[tuple[str, CellRequest]]:
    """Yield each task with its changed request."""
    return ((task, change(request_for(case, task))) for task in case.benchmark.tasks())


def roomy(request: CellRequest) -> CellRequest:
    return replace(request, eval_length=3 * request.eval_length)


def fresh(case: Case, request: CellRequest) -> Sequence[Prompt]:
    prompts: Sequence[Prompt] = case.benchmark.fresh_prompts(request)
    return prompts


def alike(one: Sequence[Prompt], other: Sequence[Prompt]) -> bool:
    return len(one) == len(other) and all(
        np.array_equal(a.ids, b.ids) and a.reference == b.reference and a.depth == b.depth
        for a, b in zip(one, other, strict=True)
    )


def gold_answer(prompt: Prompt) -> str:
    return " " + ", ".join(prompt.references or (prompt.reference,))


def score_of(case: Case, task: str, prompts: Sequence[Prompt], answers: list[str]) -> list[float]:
    return [sample.score for sample in case.benchmark.scored(task, prompts, answers)]


@functools.cache
def words_tokenizer() -> PreTrainedTokenizerFast:
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


def line_tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer whose tokens are single bytes and 136 words with line breaks.

    The break is inside a third of the words, at the end of a third, after # in a third.
    """
    content = json.loads(byte_tokenizer(ToyLlama.keys).backend_tokenizer.to_str())
    backend = Tokenizer(models.BPE(vocab=content["model"]["vocab"], merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    ends = ("\nx", "\n", "#\nx\n")
    backend.add_tokens([f"w{number}{ends[number % 3]}" for number in range(136)])
    return PreTrainedTokenizerFast(tokenizer_object=backend, clean_up_tokenization_spaces=False)


@functools.cache
def held_out(*, in_words: bool) -> Streams:
    """Return held-out text of two domains: a story for prompts in words, else random bytes."""
    if not in_words:
        return streams(3000)
    ids = words_tokenizer().encode(STORY * 120, add_special_tokens=False)
    text = np.array(ids, dtype=np.uint32)
    return Streams({"code": text, "prose": text[7:]})


@functools.cache
def toy_model(*, uniform: bool = False) -> ExtendedModel:
    """Return the toy model; with `uniform`, all tokens are equally likely."""
    model = TOY.initialise(2).eval()
    if uniform:
        model.get_output_embeddings().weight.data.zero_()
    return extend(model, TOY, METHODS.load("none")(), target=512)


@functools.cache
def wordy_model(method: str) -> ExtendedModel:
    """Return the toy model in float64, changed so that its answers contain many line breaks."""
    model: Any = TOY.initialise(2).eval().double()
    # Scale the embeddings of the words of `line_tokenizer`, which occur in no prompt.
    model.get_input_embeddings().weight.data[_FIRST_WORD:] *= 3
    return extend(model, TOY, METHODS.load(method)(), target=512)
