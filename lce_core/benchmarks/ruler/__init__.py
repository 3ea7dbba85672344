"""RULER: thirteen synthetic tasks in four families, at any length and for any tokenizer.

Text form (profiles `faithful`, `clean`, `fast`): the prompts of RULER's base template, generated
here. A task's parts: needles in a haystack (eight tasks), variable tracking, common and frequent
words, and question answering on SQuAD and HotpotQA, whose files the user names. Scores are RULER's
string matches, 0 to 1: the share of references in the answer, or for questions whether any is.
Decoding stops once that cannot rise any more. Prompt and answer together fill the cell's length; a
sample's length is its prompt tokens plus the task's budget.

`faithful` keeps what the first release (v1) does: sizes in its units (`sizes: v1`), orders that all
samples share (`permutations: fixed`), so that at a given length the evidence of every question lies
at one depth, its first questions, its wording, and `fwe` without room for the answer, where prompt
and answer may exceed the length by 50 tokens. `clean` and `fast` search for the largest size,
permute per sample, ask random questions and always keep room for the answer.

Token form (profile `tiny`, for base models with key tokens): the five tasks that have one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Literal

from pydantic import Field, model_validator

from lce_core.benchmarks import Benchmark, CellRequest, CellResult, Profile, Sample, score
from lce_core.benchmarks._data import DataSet
from lce_core.benchmarks._prompted.cache import cell_prompts
from lce_core.benchmarks._prompted.retrieval import key_task_reason, text_answers
from lce_core.benchmarks.ruler._fitting import Fitting, Permutations, RulerPrompt, Sizes
from lce_core.benchmarks.ruler._tasks import (
    TASKS,
    HaystackSource,
    Variant,
    data_set,
    new_tokens,
    reads_running_text,
    text_task,
)
from lce_core.benchmarks.ruler._token_form import KEY_TASKS, token_prompts, token_samples
from lce_core.data.sequences import Sequences
from lce_core.evaluation.metrics import string_match_all, string_match_part
from lce_core.evaluation.stats import Estimate, bootstrap_mean, wilson
from lce_core.evidence import calls
from lce_core.models import LanguageModel
from lce_core.registry import Source

_NUM_SAMPLES = {"faithful": 500, "clean": 500, "fast": 100, "tiny": 20}


class Ruler(Benchmark):
    """Share of what is asked for that is in the answers."""

    unit: ClassVar[Literal["accuracy"]] = "accuracy"
    seeded: ClassVar[bool] = True
    default_metric: ClassVar[str] = "accuracy"
    forms: ClassVar[Mapping[Profile, str]] = {
        "faithful": "500 prompts in the sizes, orders and wording of the first release (v1)",
        "clean": "500 prompts of the largest size that fits, permuted per sample, with room for the"
        " answer",
        "fast": "as clean with 100 prompts",
        "tiny": "20 prompts with key tokens, for the five tasks that have such a form",
    }

    num_samples: int | None = Field(default=None, gt=0)
    """Prompts of a cell; None: 500 (faithful, clean), 100 (fast), 20 (tiny)."""
    haystack: HaystackSource = "essays"
    """Running text of niah_single_2 and 3, multikey_1, multivalue and multiquery."""
    sizes: Sizes | None = None
    """Steps of prompt sizes; None: v1 (faithful), search (clean, fast)."""
    permutations: Permutations | None = None
    """Whether samples share their orders; None: fixed (faithful), per_sample (clean, fast)."""

    @model_validator(mode="after")
    def _settings_have_effect(self) -> Ruler:
        if self.profile == "tiny" and not {"haystack", "sizes", "permutations"}.isdisjoint(
            self.model_fields_set
        ):
            raise ValueError("profile tiny hides keys: it takes num_samples alone")
        return self

    def tasks(self) -> tuple[str, ...]:
        """RULER's thirteen tasks; in profile tiny those that have a token form."""
        return tuple(KEY_TASKS) if self.profile == "tiny" else TASKS

    def unavailable(self, base_model: LanguageModel, task: str, eval_length: int) -> str | None:
        """A tiny cell without key tokens or without room."""
        if self.profile == "tiny":
            return key_task_reason(base_model, KEY_TASKS[task].num_distractors, eval_length)
        return None

    def num_tokens(self, task: str, eval_length: int, held_out_tokens: int) -> int:
        """Prompts times their length, which leaves room for the answer."""
        if self.profile == "tiny":
            return self._num_samples() * KEY_TASKS[task].num_queries * eval_length
        return self._num_samples() * max(1, eval_length - new_tokens(task))

    def reads(self, task: str) -> tuple[DataSet, ...]:
        """The essays or questions that the task is made of."""
        data = None if self.profile == "tiny" else data_set(task, self.haystack)
        return () if data is None else (data,)

    def evaluate(self, request: CellRequest) -> CellResult:
        """Asks every prompt."""
        if self.profile == "tiny":
            groups = token_prompts(request, self._num_samples())
            samples = token_samples(request, groups)
            sequences = Sequences.of(len(prompt.ids) for group in groups for prompt in group)
        else:
            samples = self._text_samples(request)
            sequences = Sequences.of(sample.num_prompt_tokens for sample in samples)
        return CellResult(
            scores=(score("accuracy", _accuracy(samples), higher_is_better=True),),
            samples=samples,
            sequences=sequences,
        )

    def prompts(self, request: CellRequest) -> tuple[RulerPrompt, ...]:
        """All prompts of a cell in text form.

        Raises:
          UnavailableError: the length cannot hold the task, or its data are not on this machine.
          DataError: a file that cannot be read.
        """
        return cell_prompts(
            self,
            request,
            lambda: self._built(request),
            RulerPrompt,
            reads_held_out=self.haystack == "held_out" and reads_running_text(request.task),
        )

    def _built(self, request: CellRequest) -> tuple[RulerPrompt, ...]:
        units = self._sizes() == "v1"
        variant = Variant(self.haystack, self.profile == "faithful", units, self._num_samples())
        task, count = text_task(request, variant)
        return tuple(Fitting(request, task, self._sizes(), self._permutations()).prompts(count))

    def _text_samples(self, request: CellRequest) -> tuple[Sample, ...]:
        prompts = self.prompts(request)
        answers = text_answers(
            request,
            prompts,
            max_new_tokens=new_tokens(request.task),
            complete=[complete(request.task, prompt) for prompt in prompts],
        )
        return tuple(
            Sample(
                index,
                len(prompt.ids),
                match(request.task, answer, prompt.references),
                prompt.depth,
                answer,
                prompt.reference,
                prompt.cluster,
            )
            for index, (prompt, answer) in enumerate(zip(prompts, answers, strict=True))
        )

    def _sizes(self) -> Sizes:
        return self.sizes or ("v1" if self.profile == "faithful" else "search")

    def _permutations(self) -> Permutations:
        return self.permutations or ("fixed" if self.profile == "faithful" else "per_sample")

    def _num_samples(self) -> int:
        return self.num_samples or _NUM_SAMPLES[self.profile]


def match(task: str, answer: str, references: Sequence[str]) -> float:
    """The task's string match: of any reference in qa_1 and qa_2, of all of them otherwise."""
    part = task.startswith("qa_")
    return (string_match_part if part else string_match_all)(answer, references)


def complete(task: str, prompt: RulerPrompt) -> Callable[[str], bool]:
    """Whether an answer so far has the full score, which more text cannot change."""
    return lambda text: match(task, text, prompt.references) == 1


def _accuracy(samples: Sequence[Sample]) -> Estimate:
    scores = [sample.score for sample in samples]
    clusters = [sample.cluster for sample in samples]
    if clusters[0] is not None:
        return bootstrap_mean(scores, clusters=clusters)
    if all(value in (0, 1) for value in scores):
        return wilson(int(sum(scores)), len(scores))
    return bootstrap_mean(scores)


BENCHMARK = Ruler
SOURCE = Source(
    paper="arXiv:2404.06654",
    place="section 3, appendix B; v1 as run by LCEG (arXiv:2409.12181), Tables 3 and 12-16",
    reference="github.com/NVIDIA/RULER@c3f5e3b4f87f97e048793bb510a3a6b19a46bf3a;"
    " github.com/Leooyii/LCEG@2ce672dc42b9b5d3e408e8117126c28caeaafcc0",
    differs="draws are seeded by sample and not from Python's one stream, so prompts are RULER's in"
    " distribution and not in bytes; adjective-noun pairs are drawn uniformly; the keys of a prompt"
    " are distinct; an own sentence splitter replaces nltk's; the beginning-of-sequence token"
    " counts into the length; decoding stops once the score cannot rise",
)
EVIDENCE = (
    calls(
        string_match_all,
        0.5,
        "share of references in the answer",
        answer="are 7 and\t8.",
        references=["7", "8", "9", "1"],
    ),
    calls(
        string_match_part,
        1.0,
        "any reference, case aside",
        answer="In Paris.",
        references=["Rome", "paris"],
    ),
)
VERSION = 1
