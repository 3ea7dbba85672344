"""LongEval lines: the model retrieves the number of one line from as many lines as fit the length.

A line reads "line ADJECTIVE-NOUN: REGISTER_CONTENT is <NUMBER>" with a number from 1 to 50000. The
prompt ends with the start of the requested line, so that base models continue it with the number.
Like LongChat, `faithful` requests a random line and scores the last integer of 15 generated tokens.
With LongChat's published prompts (data set `long_eval`), it uses the file with the most lines that
fits the length.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from pydantic import model_validator

from lce_core.benchmarks import (
    CellData,
    CellRequest,
    DataSet,
    Examples,
    KeyTask,
    Profile,
    Prompt,
    Sampled,
    Source,
    calls,
    encode,
    encoded,
    marking,
    read_rows,
    strata,
    too_long,
)
from lce_core.benchmarks.ruler._vocabulary import word_list
from lce_core.errors import DataError, SpecError
from lce_core.evaluation.metrics import first_integer, has_complete_integer, last_integer

HEADER = (
    "Below is a record of lines I want you to remember. Each line begins with 'line <line index>'"
    " and contains a '<REGISTER_CONTENT>' at the end of the line as a numerical value. For each"
    " line index, memorize its corresponding <REGISTER_CONTENT>. At the end of the record, I will"
    " ask you to retrieve the corresponding <REGISTER_CONTENT> of a certain line index. Now the"
    " record start:\n\n"
)
NEW_TOKENS = 15
"""Maximum tokens of an answer, as in LongChat."""
MIN_LINES = 2
PUBLISHED = DataSet(
    "long_eval",
    ("*_lines.jsonl",),
    "github.com/DachengLi1/LongChat (longeval/evaluation/lines/testcases), 200_lines.jsonl and"
    " others",
)
PUBLISHED_CASES = 50
_COLUMNS = ("prompt", "random_idx", "expected_number", "num_lines")


class LongEval(Sampled):
    """LongEval lines: the score is the fraction of prompts answered with the line's number."""

    data_on_demand = (PUBLISHED,)
    task_names = ("lines",)
    profiles = {
        "faithful": Profile(
            "50 random lines, or LongChat's published prompts if the data set `long_eval` is given;"
            " scores the last integer of the answer",
            num_samples=50,
        ),
        "clean": Profile(
            "100 lines at stratified depths; scores the first integer", num_samples=100
        ),
        "fast": Profile("clean with 50 lines", num_samples=50),
        "tiny": Profile(
            "120 prompts with a key token of every family, for base models with key tokens",
            num_samples=120,
            keys=KeyTask(num_distractors=None),
        ),
    }
    answer_tokens = NEW_TOKENS
    otherwise = "set cases: generated, which fills any length"

    cases: Literal["generated", "published"] | None = None
    """Use generated prompts or LongChat's published ones; None means published in faithful without
    `num_samples` if `data_folders` contains `long_eval`, else generated."""

    @model_validator(mode="after")
    def _settings_have_effect(self) -> Self:
        if self.cases == "published" and not self.in_words:
            self.refuse(["cases: published"])
        if self.cases == "published" and self.num_samples is not None:
            raise SpecError(
                "num_samples",
                f"{self.num_samples} with cases: published, whose files have 50 prompts each",
                "num_samples only with cases: generated",
                "omit num_samples",
            )
        return self

    def num_prompts(self, task: str) -> int:
        return PUBLISHED_CASES if self.cases == "published" else super().num_prompts(task)

    def reads(self, task: str) -> tuple[DataSet, ...]:
        return (PUBLISHED,) if self.cases == "published" else ()

    def data_samples(self, cell: CellData) -> int | None:
        return PUBLISHED_CASES if self.cases == "published" else None

    def data_names(self, task: str, data_folders: Mapping[str, Path]) -> tuple[str, ...]:
        reads = self._reads_published(data_folders)
        return (PUBLISHED.recorded_name(data_folders),) if reads else ()

    def digest(self, task: str, data_folders: Mapping[str, Path]) -> str | None:
        """Return the sha256 of the published files, or of the words in generated lines."""
        if self._reads_published(data_folders):
            return PUBLISHED.digest(data_folders)
        if not self.in_words:
            return None
        words = [*word_list("adjective"), *word_list("noun")]
        return hashlib.sha256("\n".join(words).encode()).hexdigest()

    def build(self, request: CellRequest) -> list[Prompt]:
        if self._reads_published(request.data_folders):
            return published_prompts(request)
        draws = self.draws(request)
        depths = strata(draws, 100)
        if self.profile == "faithful":
            depths = [100 * rng.random() for rng in draws]
        return self.generated(request, depths, draws)

    def generated(
        self,
        request: CellRequest,
        depths: Sequence[float],
        draws: Sequence[np.random.Generator],
    ) -> list[Prompt]:
        """Build a prompt of as many lines as fit for each of `depths`, in per cent of its lines."""
        seeds = [int(rng.integers(2**63)) for rng in draws]
        more = self.parts_that_fit(
            request, lambda more: _drawn_text(depths[0], seeds[0], MIN_LINES + more)[0]
        )
        pairs = zip(depths, seeds, strict=True)
        return [_generated(request, depth, seed, MIN_LINES + more) for depth, seed in pairs]

    def slack_tokens(self, request: CellRequest) -> int:
        """Return the mean tokens of a line, of 100 lines, by which generated prompts grow."""
        if self._reads_published(request.data_folders):
            return 0
        lines = "".join(_line(*line) for line in _lines(0, 100))
        return -(-len(encode(request, lines, special_tokens=False)) // 100)

    def score_answer(self, task: str, prompt: Prompt, answer: str) -> float:
        integer = last_integer if self.profile == "faithful" else first_integer
        return float(integer(answer) == int(prompt.reference))

    def complete(self, task: str, prompt: Prompt, answer: str) -> bool:
        return self.profile != "faithful" and has_complete_integer(answer)

    def _reads_published(self, folders: Mapping[str, Path]) -> bool:
        if self.cases is None:
            generates = self.profile != "faithful" or self.num_samples is not None
            return not generates and PUBLISHED.name in folders
        return self.cases == "published"


def prompt_text(lines: Sequence[tuple[str, int]], key: str) -> str:
    record = "".join(_line(*line) for line in lines)
    return (
        f"{HEADER}{record}\nNow the record is over. Tell me what is the <REGISTER_CONTENT> in line"
        f" {key}? I need the number. {_begun_answer(key)}"
    )


def _generated(request: CellRequest, depth: float, seed: int, num_lines: int) -> Prompt:
    """Build a prompt of at most `num_lines` lines that asks for one at `depth` per cent of them."""
    while True:
        text, lines, place = _drawn_text(depth, seed, num_lines)
        ids = encode(request, text)
        needed = len(ids) + NEW_TOKENS
        if needed <= request.eval_length:
            break
        if num_lines == MIN_LINES:
            raise too_long(request, f"{MIN_LINES} lines and the answer", needed)
        # Words differ in tokens, so fewer lines may fit into this prompt than into the first.
        num_lines = max(MIN_LINES, num_lines - max(1, num_lines // 128))
    key, number = lines[place]
    return Prompt(
        np.array(ids, dtype=np.int64),
        str(number),
        100 * place / (num_lines - 1),
        controls=encoded(request, *(prompt_text(some, key) for some in ([], [lines[place]]))),
    )


def published_prompts(request: CellRequest) -> list[Prompt]:
    files = sorted(PUBLISHED.files(request.data_folders), key=_num_lines)
    fitting: list[Prompt] = []
    for file in files:
        rows = enumerate(read_rows(file, _COLUMNS), start=1)
        prompts = [_case(request, row, f"{file}: row {number}") for number, row in rows]
        PUBLISHED.require_rows(request.data_folders, file.name, len(prompts), PUBLISHED_CASES)
        needed = max(len(prompt.ids) for prompt in prompts) + NEW_TOKENS
        if needed > request.eval_length:
            if not fitting:
                advice = " or set cases: generated"
                what = f"the longest prompt of {file.name} and its answer"
                raise too_long(request, what, needed, otherwise=advice)
            break
        fitting = prompts
    return fitting


def _line(key: str, number: int) -> str:
    return f"line {key}: REGISTER_CONTENT is <{number}>\n"


def _begun_answer(key: str) -> str:
    return f"Line <{key}>: <REGISTER_CONTENT> is"


def _drawn_text(depth: float, seed: int, num_lines: int) -> tuple[str, list[tuple[str, int]], int]:
    """Return (prompt, its lines, index of the line that it asks for)."""
    lines = _lines(seed, num_lines)
    place = min(num_lines - 1, int(depth / 100 * num_lines))
    return prompt_text(lines, lines[place][0]), lines, place


def _lines(seed: int, num_lines: int) -> list[tuple[str, int]]:
    """Return `num_lines` pairs (key, number); fewer lines are the first of more lines."""
    keys_rng, numbers_rng = (np.random.default_rng([seed, part]) for part in range(2))
    adjectives, nouns = word_list("adjective"), word_list("noun")
    pairs: dict[int, None] = {}
    while len(pairs) < num_lines:
        # Draw 256 keys at a time: single draws would be slow, and a number that depends on
        # num_lines would change the order of the keys.
        pairs |= dict.fromkeys(keys_rng.integers(len(adjectives) * len(nouns), size=256).tolist())
    numbers = numbers_rng.integers(1, 50001, size=num_lines).tolist()
    keys = [f"{adjectives[pair // len(nouns)]}-{nouns[pair % len(nouns)]}" for pair in pairs]
    return list(zip(keys, numbers, strict=False))


def _num_lines(file: Path) -> int:
    number = re.match(r"\d+(?=_lines)", file.name)
    if number is None:
        raise DataError(
            file, "a name without a number", "a name such as 200_lines.jsonl", "rename or remove it"
        )
    return int(number[0])


def _case(request: CellRequest, row: dict[str, Any], place: str) -> Prompt:
    try:
        key, position = row["random_idx"]
        depth = 100 * position / (row["num_lines"] - 1)
        text, number = row["prompt"] + _begun_answer(key), int(row["expected_number"])
    except (TypeError, ValueError, ZeroDivisionError) as error:
        raise DataError(
            place,
            error,
            "a row with prompt (text), random_idx ([key, line index]), expected_number and"
            " num_lines (integers)",
            "get the file again",
        ) from None
    return Prompt(np.array(encode(request, text), dtype=np.int64), str(number), depth)


BENCHMARK = LongEval
SOURCE = Source(
    paper="arXiv:2405.14591",
    place="Table 4 (Long-eval); task: lmsys.org/blog/2023-06-29-longchat",
    reference="https://github.com/DachengLi1/LongChat/tree/4b5faa5",
    differs="generated prompts have as many lines as fit, with distinct keys; all profiles use the"
    " prompt for base models",
)
EVIDENCE = tuple(
    calls(LongEval.score_answer, score, origin, **marking("lines", "2416", answer, profile=profile))
    for profile, answer, score, origin in (
        ("faithful", " <2416>. Line 7", 0.0, "LongChat's rule: the last integer"),
        ("faithful", " Line 7: <2416>", 1.0, "LongChat's rule: the last integer"),
        ("clean", " <2416>. Line 7", 1.0, "the first integer is the line's"),
        ("clean", " Line 7: <2416>", 0.0, "the first integer is the line's number"),
    )
)
EXAMPLES: Examples = ({"num_samples": 6}, {"cases": "published"})
VERSION = 2
