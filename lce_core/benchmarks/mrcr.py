"""MRCR: repeat one of several texts that a long conversation holds for the same request.

In a conversation of the data set, a user asks for pieces of writing, and two, four or eight times
for the same one, such as "write a poem about tapirs". The last message asks for one of these texts
by its order, after a random string: "Prepend RANDOM to the 2nd (1 indexed) poem about tapirs".

The ratio of `difflib.SequenceMatcher`, the score of the data set's page, starts no match at a
character that makes up more than 1 % of a text of 200 characters or more. Most letters do, so
similar texts may score low.

A cell takes the conversations that, with room for the answer, fill more than half of the length and
at most all of it. Lengths that double share none, and each of them gets about 100 of the published
conversations, which have 4,096 to 1,048,576 tokens of the tokenizer o200k_base.
"""

import json
from collections.abc import Iterable, Iterator
from difflib import SequenceMatcher

import numpy as np

from lce_core.benchmarks import (
    CellData,
    CellRequest,
    DataRow,
    DataSet,
    Examples,
    Profile,
    Prompt,
    Sampled,
    Source,
    Table,
    TokenIds,
    calls,
    chat_ids,
    encode,
    read_rows,
    spread,
)
from lce_core.errors import DataError, UnavailableError
from lce_core.models import LanguageModel

NEEDLES = {f"needles_{number}": number for number in (2, 4, 8)}
"""Texts for the asked request, by task."""
NUM_ROWS = 800
"""Published conversations of each task: 100 for each of eight lengths."""
ROWS_PER_LENGTH = 100
NEW_TOKENS = 1024
"""Maximum tokens of an answer. The texts have about 1,800 characters on average."""
ROLES = {"user": "User", "assistant": "Assistant"}
"""Names of the roles in the prompt, as in the data set's own solved examples."""
_NEXT_TURN = f"\n{ROLES['user']}:"
_MIN_PROMPT = 32
_MAX_CHARACTERS_PER_TOKEN = 8
"""Longer conversations are left out without tokenising: English text has 4 to 5 characters."""
_COLUMNS = ("prompt", "answer", "random_string_to_prepend", "n_needles", "desired_msg_index")


class Mrcr(Sampled):
    """Texts repeated by their order: the score is the similarity of answer and text."""

    seeded = False
    # The conversations determine the lengths of the prompts.
    fills_length = False
    task_names = tuple(NEEDLES)
    profiles = {
        "clean": Profile("up to 100 conversations per length", num_samples=ROWS_PER_LENGTH),
        "fast": Profile("up to 20 conversations per length", num_samples=20),
    }
    answer_tokens = NEW_TOKENS
    has_messages = True

    def unavailable(self, base_model: LanguageModel, task: str, eval_length: int) -> str | None:
        least = _MIN_PROMPT + NEW_TOKENS
        needs = f"conversation and answer need at least {least} tokens"
        return None if eval_length >= least else f"eval_length {eval_length}: {needs}"

    def reads(self, task: str) -> tuple[DataSet, ...]:
        return (_data_set(task),)

    def data_samples(self, cell: CellData) -> int:
        return ROWS_PER_LENGTH

    def prompt_tokens(self, task: str, eval_length: int) -> int:
        # The middle of the lengths that a cell takes.
        return max(1, 3 * eval_length // 4 - NEW_TOKENS)

    def build(self, request: CellRequest) -> list[Prompt]:
        candidates = (self._fitting(request, row, place) for row, place in _rows(request))
        prompts = [prompt for prompt in candidates if prompt]
        if not prompts:
            raise UnavailableError(
                "eval_length",
                f"{request.eval_length:,} tokens, of which no conversation of {request.task} with"
                f" {NEW_TOKENS:,} tokens for its answer fills more than half",
                "the length of conversations: those of the data set have 4,096 to 1,048,576 tokens",
                "use such a length",
            )
        return [prompts[index] for index in spread(len(prompts), self.num_prompts(request.task))]

    def score_answer(self, task: str, prompt: Prompt, answer: str) -> float:
        return similarity(answer, prompt.reference, _random_string(prompt))

    def complete(self, task: str, prompt: Prompt, answer: str) -> bool:
        """Stop at the next turn, or once the answer does not start with the random string."""
        start, begun = _random_string(prompt), answer.lstrip()
        return _NEXT_TURN in begun or not start.startswith(begun[: len(start)])

    def _fitting(self, request: CellRequest, row: DataRow, place: str) -> Prompt | None:
        """Return the prompt of a row; None if it belongs to another length."""
        random_string, answer = row["random_string_to_prepend"], row["answer"]
        reason = ""
        try:
            messages = json.loads(row["prompt"])
            turns = [f"{ROLES[message['role']]}: {message['content']}\n" for message in messages]
            text = answer.removeprefix(random_string)
            needle = row["desired_msg_index"] + 1
            if answer != random_string + messages[needle]["content"]:
                reason = f"an answer that is not message {needle} after the random string"
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            reason = f"{type(error).__name__} {error}"
        if reason:
            raise DataError(
                place,
                reason,
                "`prompt` as a JSON list of messages with role and content, and in `answer` the"
                " random string and the text of message `desired_msg_index` + 1",
                "use the data set in its published form",
            )
        whole = f"{''.join(turns)}{ROLES['assistant']}:"
        depth = 100 * sum(map(len, turns[:needle])) / len(whole)
        if len(whole) > _MAX_CHARACTERS_PER_TOKEN * request.eval_length:
            return None

        def token_ids(places: Iterable[int]) -> TokenIds:
            if self.chat:
                return chat_ids(request, [messages[at] for at in places], self.system_prompt)
            shown = "".join(turns[at] for at in places)
            return np.array(encode(request, f"{shown}{ROLES['assistant']}:"), dtype=np.int64)

        last = len(turns) - 1
        ids = token_ids(range(len(turns)))
        if not request.eval_length < 2 * (len(ids) + NEW_TOKENS) <= 2 * request.eval_length:
            return None
        # The first message shows the form of an answer; it is no context.
        kept = ([0, last], [0, needle - 1, needle, last])
        controls = tuple(tuple(token_ids(places).tolist()) for places in kept)
        return Prompt(ids, answer, depth, evidence=text, controls=controls)


def similarity(answer: str, reference: str, random_string: str) -> float:
    """Return the similarity (0..1) of an answer's first turn and the reference.

    It is 0 unless the turn starts with `random_string`, as the reference does.
    """
    turn = answer.lstrip().partition(_NEXT_TURN)[0]
    if not turn.startswith(random_string):
        return 0.0
    text = reference.removeprefix(random_string)
    return SequenceMatcher(None, turn.removeprefix(random_string), text).ratio()


def _random_string(prompt: Prompt) -> str:
    return prompt.reference.removesuffix(prompt.evidence)


def _data_set(task: str) -> DataSet:
    return DataSet(
        "mrcr",
        (f"{NEEDLES[task]}needle/*.parquet",),
        "huggingface.co/datasets/openai/mrcr (folders 2needle, 4needle and 8needle)",
        (Table(split="train"),),
    )


def _rows(request: CellRequest) -> Iterator[tuple[DataRow, str]]:
    """Yield the task's rows with their places; raise DataError if some are missing."""
    data, number, count = _data_set(request.task), NEEDLES[request.task], 0
    for file in data.files(request.data_folders):
        for line, row in enumerate(read_rows(file, _COLUMNS), start=1):
            if row["n_needles"] == number:
                count += 1
                yield row, f"{file}: row {line}"
    data.require_rows(request.data_folders, f"{number}needle", count, NUM_ROWS)


BENCHMARK = Mrcr
SOURCE = Source(
    paper="arXiv:2409.12640",
    place="the task MRCR; conversations and score: the data set of OpenAI (2025)",
    reference="https://huggingface.co/datasets/openai/mrcr",
    differs="base models have no chat template, so without `chat` messages are plain turns,"
    " 'User: ...' and 'Assistant: ...', each on a new line; the answer ends where the model begins"
    " another turn of the user, and white space before it is ignored; decoding is greedy and stops"
    " once the score is settled, at the latest after 1,024 tokens, which the length includes;"
    " lengths count tokens of the base model's tokenizer",
)
EVIDENCE = tuple(
    calls(similarity, score, origin, answer=answer, reference=reference, random_string="aYooSG8CQg")
    for answer, reference, score, origin in (
        (
            " aYooSG8CQgcat sat\nUser: write a poem",
            "aYooSG8CQgcats sat",
            14 / 15,
            "2 x 7 matching characters of 7 and 8, by hand",
        ),
        ("cat sat", "aYooSG8CQgcat sat", 0.0, "no random string"),
        ("Here: aYooSG8CQgcat sat", "aYooSG8CQgcat sat", 0.0, "text before the random string"),
        (
            f"aYooSG8CQg\n{'ab' * 100}",
            f"aYooSG8CQg{'ab' * 100}",
            0.0,
            "no match starts at a character of more than 1 % of 200 characters: difflib's rule",
        ),
    )
)
EXAMPLES: Examples = ({"num_samples": 2},)
VERSION = 2
