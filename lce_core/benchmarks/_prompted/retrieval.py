"""Build prompts, fit them to the cell's length, and generate answers."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lce_core.benchmarks._base import CellRequest
from lce_core.errors import UnavailableError
from lce_core.store.identity import fingerprint

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

TokenIds = NDArray[np.int64]
Stream = NDArray[np.uint32]
Complete = Callable[[str], bool]

END_CHARACTERS = 200
"""Length of `Sample.prompt_end`."""
_ROUNDS = 8
"""Maximum number of cuts: joined halves, tokenised again, may have too many tokens."""


@dataclass(frozen=True, eq=False)
class Prompt:
    """A prompt as token ids, its expected answer, and what else scores it."""

    ids: TokenIds
    reference: str
    depth: float | None = None
    """Position of the answer's text in per cent of the context; None if it has no single position.
    Reports draw a grid of depths that are evenly spaced or all whole."""
    _: KW_ONLY
    evidence: str = ""
    """Text at `depth` that contains the answer, if the answer has other places too, such as a list
    of labels, or that the answer repeats after other words. Empty: it is `reference` itself."""
    references: tuple[str, ...] = ()
    """All right answers, or all parts of one, of which `reference` is a summary; empty if
    `reference` is the only one."""
    cluster: str | None = None
    """Name of a group of dependent samples, such as all prompts about one document, which the
    bootstrap resamples as a whole. None: the sample is independent."""
    context_tokens: int = 0
    """Tokens before the question, if the prompt has a context that passes once for all its
    questions; 0 otherwise."""
    labels: tuple[str, ...] = ()
    """Labels that could answer the prompt. After a context they are compared by their likelihood,
    so they are at least two, with `reference` among them."""
    inserted: tuple[int, ...] = ()
    """Indices in the context of inserted sentences: start, end (exclusive), start, end, ..."""
    controls: tuple[tuple[int, ...], ...] = ()
    """Token ids of the same prompt without its context and, as a second entry, with only the
    neighbourhood of the answer as context, such as the sentence that states it. Empty: the prompt
    has no context that could be left out. One entry: the answer has no single neighbourhood."""
    is_cut: bool = False
    """True if the prompt lost its middle, because it was longer than the cell's length."""

    @property
    def right_answers(self) -> tuple[str, ...]:
        return self.references or (self.reference,)

    @property
    def context(self) -> bytes:
        return self.ids[: self.context_tokens].tobytes()


def prompts_sha256(prompts: Sequence[Prompt]) -> str:
    total = hashlib.sha256()
    for prompt in prompts:
        total.update(f"{len(prompt.ids)}\n".encode())
        total.update(prompt.ids.astype("<i8").tobytes())
    return total.hexdigest()


def marking(task: str, reference: str, answer: str, **parameters: Any) -> dict[str, Any]:
    """Return the arguments of `calls` for the score of an answer, in `EVIDENCE`."""
    prompt = Prompt(np.empty(0, dtype=np.int64), reference)
    return {"parameters": parameters, "task": task, "prompt": prompt, "answer": answer}


def decoded(tokenizer: "PreTrainedTokenizerBase", ids: list[int]) -> str:
    """Return the text of token ids as the model saw it, including special tokens."""
    # Clean-up would remove spaces that the model saw.
    return str(tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False))


def end_of(prompt: Prompt, tokenizer: "PreTrainedTokenizerBase") -> str:
    # A token rarely has less than one character. The first one may be a part of a character.
    return decoded(tokenizer, prompt.ids[-END_CHARACTERS - 4 :].tolist())[-END_CHARACTERS:]


def generator(*place: str | int) -> np.random.Generator:
    """Return a random generator seeded by a hash of all arguments, such as task and seed."""
    return np.random.default_rng(int(fingerprint(list(place)), 16))


def passed_share(num_questions: int, question_tokens: float, prompt_tokens: float) -> float:
    """Return the fraction (0..1) of prompt tokens that passes through the model, for costs.

    A context passes once for all its questions, each of which adds `question_tokens`.
    `prompt_tokens` is the mean length of a context and one question.
    """
    once = prompt_tokens + (num_questions - 1) * min(prompt_tokens, question_tokens)
    return once / (num_questions * prompt_tokens)


def long_streams(request: CellRequest, num_tokens: int) -> list[Stream]:
    """Return the streams of at least `num_tokens` tokens, or raise UnavailableError."""
    streams = [request.held_out.stream(domain) for domain in request.held_out.domains]
    long_enough = [stream for stream in streams if len(stream) >= num_tokens]
    if not long_enough:
        longest = max((len(stream) for stream in streams), default=0)
        raise UnavailableError(
            "held-out text",
            f"{longest} tokens in the longest domain",
            f"at least {num_tokens} tokens, the text of one prompt",
            "raise evaluation.held_out_tokens or give the corpus more text",
        )
    return long_enough


def random_slice(streams: list[Stream], num_tokens: int, rng: np.random.Generator) -> Stream:
    """Choose a random stream, and return `num_tokens` successive tokens from a random position."""
    stream = streams[rng.integers(len(streams))]
    start = int(rng.integers(len(stream) - num_tokens + 1))
    return stream[start : start + num_tokens]


def answer_text(request: CellRequest, ids: TokenIds) -> str:
    return str(request.tokenizer.decode(ids.tolist(), skip_special_tokens=True))


def text_answers(
    request: CellRequest,
    prompts: Sequence[Prompt],
    *,
    max_new_tokens: int,
    complete: Complete | Sequence[Complete],
    text_of: Callable[[CellRequest, TokenIds], str] = answer_text,
) -> list[str]:
    """Generate an answer of at most `max_new_tokens` tokens to each prompt; return it as text.

    `complete`, one function for all prompts or one for each, receives the answer generated so far,
    and returns True to stop because more text cannot change the score; ignored without `savings`.
    """
    from lce_core.evaluation.decoding import Stop, generate

    def stop(rule: Complete) -> Stop:
        return lambda ids: rule(text_of(request, ids))

    rules = [complete] * len(prompts) if callable(complete) else complete
    answers = generate(
        request.model,
        [prompt.ids for prompt in prompts],
        max_new_tokens=max_new_tokens,
        stop=[stop(rule) for rule in rules] if request.savings else None,
        batch_tokens=request.batch_tokens,
        share_prefixes=request.savings,
        cell=request.cell,
        report=request.report,
    )
    return [text_of(request, answer) for answer in answers]


def token_ids(request: CellRequest, text: str) -> TokenIds:
    """Return the token ids of a part of a prompt, without special tokens (`encode`)."""
    return np.array(encode(request, text, special_tokens=False), dtype=np.int64)


def encode(
    request: CellRequest, text: str, *, special_tokens: bool = True, names: bool = False
) -> list[int]:
    """Return a text's token ids, by default with special tokens such as that of its beginning.

    An end-of-text token is never added, because the model has to continue the text. With `names`
    the name of a special token, such as "</s>", becomes this token; otherwise it counts as plain
    characters, as in training text.
    """
    tokenizer = request.tokenizer
    ids: list[int] = tokenizer.encode(
        text, add_special_tokens=special_tokens, split_special_tokens=not names
    )
    end = tokenizer.eos_token_id
    # Ask about "a": the last token of an empty text may be its first, with the same id.
    if special_tokens and end is not None and ids[-1:] == [end] == tokenizer.encode("a")[-1:]:
        del ids[-1]
    return ids


def encoded(request: CellRequest, *texts: str) -> tuple[tuple[int, ...], ...]:
    """Return the token ids of whole prompts, such as `Prompt.controls`."""
    return tuple(tuple(encode(request, text)) for text in texts)


def too_long(
    request: CellRequest, what: str, needed: int, *, otherwise: str = ""
) -> UnavailableError:
    """Build the error for a prompt that takes, with its answer, more tokens than the cell's length.

    `what` is a plural noun, such as "two lines and the answer"; `otherwise` ends the message.
    """
    return UnavailableError(
        "eval_length",
        f"{request.eval_length} tokens, but {what} take {needed}",
        f"at least {needed} tokens",
        f"use a longer length{otherwise}",
    )


def cut_middle(request: CellRequest, text: str, max_tokens: int) -> list[int]:
    """Return the token ids of a text, without its middle if it has more than `max_tokens` tokens.

    The first and the last max_tokens // 2 tokens are decoded without special tokens, joined and
    tokenised again, so a few more may result. Source: LongBench/pred.py of
    github.com/THUDM/LongBench@2e00731, and LCEG's copy of it.
    """
    ids = encode(request, text)
    return ids if len(ids) <= max_tokens else encode(request, _ends(request, ids, max_tokens))


def cut_middle_to_fit(request: CellRequest, text: str, max_tokens: int) -> list[int]:
    """Shorten a text as `cut_middle` does, but return at most `max_tokens` token ids.

    If halves are still too long after `_ROUNDS` cuts, token ids are removed from the middle.
    """
    ids = encode(request, text)
    kept, cut = max_tokens, ids
    for _ in range(_ROUNDS):
        excess = len(cut) - max_tokens
        if excess <= 0 or kept <= 0:
            break
        cut = encode(request, _ends(request, ids, kept))
        kept -= max(1, len(cut) - max_tokens)
    half = max_tokens // 2
    return cut if len(cut) <= max_tokens else cut[:half] + cut[len(cut) - half :]


def _ends(request: CellRequest, ids: list[int], max_tokens: int) -> str:
    half = max_tokens // 2
    parts = ids[:half], ids[len(ids) - half :]
    return "".join(str(request.tokenizer.decode(part, skip_special_tokens=True)) for part in parts)
