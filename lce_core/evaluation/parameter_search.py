"""Search for the parameters that a method leaves open, by losses on validation text.

The search itself belongs to the method (`ParameterSearch.run`). Every loss is stored as soon as it
is measured, and an interrupted search first replays the stored losses.
"""

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from lce_core.data.held_out import HeldOutText
from lce_core.data.tokenised import separator_of, token_ids
from lce_core.errors import DataError
from lce_core.evaluation.likelihood import window_scores
from lce_core.extension.extended_model import ExtendedModel
from lce_core.methods import Method, Parameters, ParameterSearch, SearchResult
from lce_core.models import KeyVocabulary
from lce_core.progress import Report
from lce_core.rope import ContextLengths
from lce_core.store.odd_files import write_file

TRIALS_FILE = "trials.jsonl"
"""File with one JSON object per trial, in order: its parameters and its loss."""
_NEEDLE = "The secret number of this text is {number}. Keep in mind that it is {number}.\n"
_QUESTION = "\nQuestion: What is the secret number of this text? Answer: The secret number is"
_ANSWER = " {number}"


@dataclass(frozen=True, eq=False)
class Samples:
    """Texts of one length on which a search measures losses."""

    windows: NDArray[np.int64]
    """Token ids (samples, length)."""
    scored: NDArray[np.bool_]
    """True for each token after the first whose loss counts, (samples, length - 1)."""


def draw_samples(
    search: ParameterSearch,
    text: HeldOutText,
    length: int,
    tokenizer: PreTrainedTokenizerBase,
    keys: KeyVocabulary | None = None,
) -> Samples:
    """Return consecutive slices of the validation text, taken from its domains in turn.

    Guided by needles, each text starts with a sentence that contains a number and ends with a
    question about it; only the tokens of the answer count. Models with key tokens get a key token
    for the sentence, and its query token for the question.
    """
    windows = _slices(text, search.samples, length)
    scored = np.ones((search.samples, length - 1), dtype=np.bool_)
    if search.guide == "perplexity":
        return Samples(windows, scored)
    scored[:] = False
    separator = separator_of(tokenizer)
    start = [] if separator is None else [separator]
    for row, rng in enumerate(np.random.default_rng(search.seed).spawn(search.samples)):
        needle, question, answer = _needle(rng, tokenizer, keys)
        begin, end = [*start, *needle], [*question, *answer]
        if len(begin) + len(end) > length:
            raise DataError(
                "search guided by needles",
                f"texts of {length} tokens",
                f"at least {len(begin) + len(end)} tokens for needle, question and answer",
                "raise target_context, or write `guide: perplexity`",
            )
        windows[row, : len(begin)] = begin
        windows[row, length - len(end) :] = end
        scored[row, length - 1 - len(answer) :] = True
    return Samples(windows, scored)


def search_parameters(
    method: Method,
    model: ExtendedModel,
    samples: Samples,
    *,
    batch_tokens: int,
    progress: Path,
    out: Path,
    report: Report,
) -> SearchResult:
    """Run the search of a method and return its result; changes the model's method."""
    search = method.open_search()
    assert search is not None, "only a method with open parameters has a search"
    file = progress / TRIALS_FILE
    stored = _read_trials(file)
    progress.mkdir(parents=True, exist_ok=True)
    # Rewritten, because the last line of an interrupted search may be incomplete.
    write_file(file, "".join(map(_line, stored)).encode(), durable=True)
    done = 0

    def loss(parameters: Parameters) -> float:
        nonlocal done
        if done < len(stored):
            trial = stored[done]
            assert trial["parameters"] == dict(parameters), "a search is a function of its losses"
            found = float(trial["loss"])
        else:
            model.method = method.settled(parameters)
            scores = window_scores(model, samples.windows, batch_tokens=batch_tokens)
            found = float(scores.nll[samples.scored].mean(dtype=np.float64))
            with file.open("a", encoding="utf-8") as stream:
                stream.write(_line({"parameters": dict(parameters), "loss": found}))
                stream.flush()
                os.fsync(stream.fileno())
        done += 1
        report({"done": done, "total": search.max_trials})
        return found

    lengths = ContextLengths(model.trained, model.target, model.target)
    result = search.run(model.geometry, lengths, loss)
    shutil.copyfile(file, out / TRIALS_FILE)
    return result


def _line(trial: Mapping[str, Any]) -> str:
    return f"{json.dumps(trial)}\n"


def _read_trials(file: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    if file.is_file():
        for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                trial = json.loads(line)
            except ValueError:
                break
            if not isinstance(trial, Mapping) or set(trial) != {"parameters", "loss"}:
                break
            found.append(dict(trial))
    return found


def _slices(text: HeldOutText, number: int, length: int) -> NDArray[np.int64]:
    streams = [text.stream(domain) for domain in text.domains]
    found = [
        stream[index * length : (index + 1) * length]
        for index in range(number)
        for stream in streams
        if len(stream) >= (index + 1) * length
    ]
    if len(found) < number:
        raise DataError(
            "validation text of a search",
            f"{len(found)} texts of {length} tokens",
            f"{number} texts, the search's number of samples",
            "raise evaluation.held_out_tokens, or lower `samples` in `search`",
        )
    return np.stack(found[:number]).astype(np.int64)


def _needle(
    rng: np.random.Generator, tokenizer: PreTrainedTokenizerBase, keys: KeyVocabulary | None
) -> tuple[list[int], list[int], list[int]]:
    if keys is not None:
        family, member = int(rng.integers(keys.families)), int(rng.integers(keys.members))
        key = int(keys.ids(family, member))
        return [key], [keys.first_query + family], [key]
    number = int(rng.integers(10_000, 100_000))
    parts = [one.format(number=number) for one in (_NEEDLE, _QUESTION, _ANSWER)]
    needle, question, answer = token_ids(tokenizer, parts)
    return needle, question, answer
