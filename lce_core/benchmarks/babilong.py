"""BABILong: simple facts scattered in a long text, and questions that need one to three of them.

The tasks have the form of bAbI's tasks 1 to 5: one, two and three supporting facts, relations of
two arguments and of three. The sentences of a story are inserted at random positions of held-out
text, in their order. Questions about one story share the forward pass over its text. A question is
kept only if the story answers it without ambiguity and the sentence with its answer occurs once.
Intervals resample stories.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

import numpy as np
from pydantic import Field

from lce_core.benchmarks import (
    MIN_TEXT,
    CellRequest,
    Examples,
    Profile,
    Prompt,
    PromptBenchmark,
    Source,
    Stream,
    calls,
    encode,
    long_streams,
    passed_share,
    random_slice,
    token_ids,
    too_long,
)
from lce_core.errors import SpecError

QUESTION_TOKENS = 30
"""Approximate tokens that pass through the model for one question and its labels, for costs."""
_RULES = (
    "Answer the question about persons, places and things with one word, from the facts in the text"
    " below. The latest fact holds."
)
_EXAMPLES = {
    "qa1": ("Ann went to the cellar. Bob went to the attic. Where is Ann?", "cellar"),
    "qa2": ("Ann went to the cellar. Ann took the lamp. Where is the lamp?", "cellar"),
    "qa3": (
        "Ann went to the cellar. Ann took the lamp. Ann went to the attic. Where was the lamp"
        " before the attic?",
        "cellar",
    ),
    "qa4": ("The cellar is east of the attic. What is east of the attic?", "cellar"),
    "qa5": ("Ann gave the lamp to Bob. Who gave the lamp to Bob?", "Ann"),
}
PLACES = ("bathroom", "bedroom", "garden", "hallway", "kitchen", "office")
OBJECTS = ("apple", "football", "milk")
WALKERS = ("Daniel", "John", "Mary", "Sandra")
GIVERS = ("Bill", "Fred", "Jeff", "Mary")
LABELS = {
    **dict.fromkeys(("qa1", "qa2", "qa3", "qa4"), PLACES),
    "qa5": (*GIVERS, *OBJECTS),
}
"""All possible answers by task, as in BABILong (babilong/metrics.py)."""
_OPPOSITE = {"north": "south", "south": "north", "east": "west", "west": "east"}
_TRIES = 1000

T = TypeVar("T")
Told = tuple[list[str], Iterator["Question"]]
"""Sentences of a story, and the questions that it answers."""


class Question(NamedTuple):
    """A question about a story, its answer, and the sentence that contains the answer."""

    text: str
    answer: str
    evidence: str


class BabiLong(PromptBenchmark):
    """Reasoning over facts in a long text: the score is the fraction of right answers."""

    kind = "reasoning"
    task_names = tuple(LABELS)
    profiles = {
        "clean": Profile("100 stories in held-out text", num_stories=100),
        "fast": Profile("20 stories in held-out text", num_stories=20),
    }
    answer_tokens = 20
    """As in BABILong's runs of base models."""

    num_stories: int | None = Field(default=None, gt=0)
    """Stories per task; None means 100 (clean), 20 (fast)."""
    max_facts: int = Field(default=20, ge=8)
    """Maximum number of sentences in a story; stories have at least half as many,
    except those of qa4, which have two."""
    num_questions: int = Field(default=2, gt=0, le=2)
    """Questions per story."""

    def num_prompts(self, task: str) -> int:
        return self.num_groups(task) * self.num_questions

    def num_groups(self, task: str) -> int:
        return int(self.setting("num_stories"))

    def distinct_share(self, task: str, prompt_tokens: float) -> float:
        return passed_share(self.num_questions, QUESTION_TOKENS, prompt_tokens)

    def reads_held_out(self, task: str) -> bool:
        return True

    def build(self, request: CellRequest) -> list[Prompt]:
        streams = long_streams(request, request.eval_length)
        return [
            prompt
            for number, rng in enumerate(self.draws(request))
            for prompt in self._about(
                request,
                f"seed-{request.seed}-story-{number}",
                random_slice(streams, request.eval_length, rng),
                rng,
            )
        ]

    def _about(
        self, request: CellRequest, cluster: str, text: Stream, rng: np.random.Generator
    ) -> list[Prompt]:
        task = request.task
        sentences, questions = story(task, self.max_facts, self.num_questions, rng)
        facts = [token_ids(request, f"\n{sentence}\n") for sentence in sentences]
        shown, answer = _EXAMPLES[task]
        example = f"<example>\n{shown}\nAnswer: {answer}.\n</example>"
        head = np.array(encode(request, f"{_RULES}\n\n{example}\n\n<context>\n"), dtype=np.int64)
        asked = [
            token_ids(request, f"\n</context>\n\nQuestion: {one.text}\nAnswer:")
            for one in questions
        ]
        spent = len(head) + sum(map(len, facts)) + max(map(len, asked)) + self.answer_tokens
        room = request.eval_length - spent
        if room < MIN_TEXT:
            raise too_long(request, "a story, a question and its answer", spent + MIN_TEXT)
        cuts = np.sort(rng.integers(room + 1, size=len(facts)))
        parts = np.split(text[:room].astype(np.int64), cuts)
        pieces = [piece for pair in zip(parts, facts, strict=False) for piece in pair]
        context = np.concatenate([head, *pieces, parts[-1]])
        return [
            Prompt(
                np.concatenate([context, ids]),
                one.answer,
                float(100 * cuts[sentences.index(one.evidence)] / room),
                evidence=one.evidence,
                # Labels that the question names cannot answer it.
                labels=tuple(name for name in LABELS[task] if name.lower() not in one.text.lower()),
                context_tokens=len(context),
                cluster=cluster,
                controls=tuple(
                    tuple(np.concatenate([head, *told, ids]).tolist()) for told in ((), facts)
                ),
            )
            for one, ids in zip(questions, asked, strict=True)
        ]

    def slack_tokens(self, request: CellRequest) -> int:
        return 8  # a text leaves room for its longest question

    def score_answer(self, task: str, prompt: Prompt, answer: str) -> float:
        return only_label(answer, prompt.reference, prompt.labels or LABELS[task])

    def complete(self, task: str, prompt: Prompt, answer: str) -> bool:
        return "." in answer


def only_label(answer: str, reference: str, possible: Sequence[str]) -> float:
    """Return 1 if the answer's first sentence contains the reference and no other possible label.

    Case is ignored. A label counts even within a word. The text after "<context>" or "<example>",
    with which a model begins another example, is ignored. Source: compare_answers in
    babilong/metrics.py of github.com/booydar/babilong@7a6efee.
    """
    sentence = answer.lower().split(".")[0].split("<context>")[0].split("<example>")[0]
    found = {label for label in possible if label.lower() in sentence}
    return float(found == {reference})


@dataclass
class World:
    """Persons, objects and places, and the sentences that have been told about them."""

    rng: np.random.Generator
    sentences: list[str] = field(default_factory=list)
    stays: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    """Maps each person or object to its places in order, each with the sentence of the move."""
    holder: dict[str, str] = field(default_factory=dict)

    def one(self, values: Sequence[T]) -> T:
        return values[int(self.rng.integers(len(values)))]

    def move(self, person: str) -> None:
        """Move a person to another place, with all objects that the person holds."""
        here = self.stays.get(person, [("", "")])[-1][0]
        place = self.one([place for place in PLACES if place != here])
        verb = self.one(("moved", "went", "travelled", "journeyed", "went back"))
        self.sentences.append(f"{person} {verb} to the {place}.")
        for mover in (person, *(thing for thing, by in self.holder.items() if by == person)):
            self.stays.setdefault(mover, []).append((place, self.sentences[-1]))

    def take(self, person: str, thing: str) -> None:
        verb = self.one(("took", "got", "grabbed", "picked up"))
        self.sentences.append(f"{person} {verb} the {thing}.")
        self.holder[thing] = person
        if person in self.stays:
            self.stays.setdefault(thing, []).append(self.stays[person][-1])

    def drop(self, thing: str) -> None:
        verb = self.one(("dropped", "left", "put down"))
        self.sentences.append(f"{self.holder.pop(thing)} {verb} the {thing}.")


def story(
    task: str, max_facts: int, num_questions: int, rng: np.random.Generator
) -> tuple[list[str], list[Question]]:
    """Return the sentences of a story and `num_questions` distinct questions about its end."""
    for _ in range(_TRIES):
        num_facts = int(rng.integers(max_facts // 2, max_facts, endpoint=True))
        sentences, found = _TOLD[task](task, num_facts, rng)
        once = [one for one in found if sentences.count(one.evidence) == 1]
        if len(once) >= num_questions:
            chosen = rng.permutation(len(once))[:num_questions]
            return sentences, [once[place] for place in chosen]
    raise SpecError(
        "babilong.num_questions",
        f"{num_questions}, which none of {_TRIES} drawn stories of {task} has",
        "questions about different facts of one story",
        "write a smaller num_questions or a larger max_facts",
    )


def _walks(task: str, num_facts: int, rng: np.random.Generator) -> Told:
    world = World(rng)
    while len(world.sentences) < num_facts:
        person = world.one(WALKERS)
        if task == "qa1" or person not in world.stays or rng.random() < 0.6:
            world.move(person)
        else:
            _handle(world, person)
    asked = {
        "qa1": _where_is(world, WALKERS, ""),
        "qa2": _where_is(world, OBJECTS, "the "),
        "qa3": _where_was_a_thing(world),
    }
    return world.sentences, asked[task]


def _handle(world: World, person: str) -> None:
    """Let a person drop an object, or take one that lies in the same place or was never named."""
    held = [thing for thing in OBJECTS if world.holder.get(thing) == person]
    here = world.stays[person][-1][0]
    free = [
        thing
        for thing in OBJECTS
        if thing not in world.holder and world.stays.get(thing, [(here, "")])[-1][0] == here
    ]
    if held and (not free or world.rng.random() < 0.5):
        world.drop(world.one(held))
    elif free:
        world.take(person, world.one(free))


def _where_is(world: World, names: Sequence[str], article: str) -> Iterator[Question]:
    for name in names:
        if name in world.stays:
            yield Question(f"Where is {article}{name}?", *world.stays[name][-1])


def _where_was_a_thing(world: World) -> Iterator[Question]:
    for thing in OBJECTS:
        stays: list[tuple[str, str]] = []
        for stay in world.stays.get(thing, []):
            # An object that is dropped and taken again has not moved.
            if not stays or stays[-1][0] != stay[0]:
                stays.append(stay)
        places = [place for place, _ in stays]
        if len(stays) > 1 and places.count(places[-1]) == 1:
            yield Question(f"Where was the {thing} before the {places[-1]}?", *stays[-2])


def _relations(_: str, __: int, rng: np.random.Generator) -> Told:
    """Tell of two places relative to a third (qa4), in directions that are not opposite.

    If they were, "the office is north of the garden" would answer both questions.
    """
    first, middle, last = (PLACES[place] for place in rng.permutation(len(PLACES))[:3])
    world, names = World(rng), tuple(_OPPOSITE)
    one = world.one(names)
    other = world.one([name for name in names if name != _OPPOSITE[one]])
    facts = [
        f"The {first} is {one} of the {middle}.",
        f"The {middle} is {other} of the {last}.",
    ]
    asked = (
        Question(f"What is {one} of the {middle}?", first, facts[0]),
        Question(f"What is the {middle} {other} of?", last, facts[1]),
    )
    return [facts[place] for place in rng.permutation(2)], iter(asked)


def _gifts(_: str, num_facts: int, rng: np.random.Generator) -> Told:
    world, gifts = World(rng), list[tuple[str, str, str, str]]()
    while len(world.sentences) < num_facts:
        thing, person = world.one(OBJECTS), world.one(GIVERS)
        if thing not in world.holder:
            world.take(person, thing)
        elif rng.random() < 0.3:
            world.move(person)
        elif person != (giver := world.holder[thing]):
            verb = world.one(("gave", "handed", "passed"))
            world.sentences.append(f"{giver} {verb} the {thing} to {person}.")
            world.holder[thing] = person
            gifts.append((giver, thing, person, world.sentences[-1]))
    return world.sentences, _about_gifts(gifts)


def _about_gifts(gifts: Sequence[tuple[str, str, str, str]]) -> Iterator[Question]:
    wordings = (
        "Who gave the {1} to {2}?",
        "What did {0} give to {2}?",
        "Who did {0} give the {1} to?",
    )
    for asked, wording in enumerate(wordings):
        texts = [wording.format(*gift) for gift in gifts]
        for text, gift in zip(texts, gifts, strict=True):
            if texts.count(text) == 1:
                yield Question(text, gift[asked], gift[3])


_TOLD = {"qa1": _walks, "qa2": _walks, "qa3": _walks, "qa4": _relations, "qa5": _gifts}


BENCHMARK = BabiLong
SOURCE = Source(
    paper="arXiv:2406.10149",
    place="section 2, tasks qa1 to qa5; stories: arXiv:1502.05698, tasks 1 to 5",
    reference="github.com/booydar/babilong@7a6efee29f5cac03c3c410e6799c80fd2ffe3610",
    differs="stories, instructions and examples are made here; the text is the study's held-out"
    " text; several questions about one story share its text; answers are single words; the"
    " length includes the answer's tokens; generation stops after the first sentence",
)
EVIDENCE = tuple(
    calls(only_label, expected, origin, answer=answer, reference=reference, possible=possible)
    for answer, reference, possible, expected, origin in (
        (" The office.", "office", ("garden", "office"), 1.0, "compare_answers by hand"),
        (" OFFICE. Or garden.", "office", ("garden", "office"), 1.0, "only the first sentence"),
        (" office or garden", "office", ("garden", "office"), 0.0, "two labels"),
        (" garden", "office", ("garden", "office"), 0.0, "another label"),
        (" mary<example> fred", "Mary", ("Fred", "Mary"), 1.0, "text after the tag is ignored"),
        ("", "office", ("garden", "office"), 0.0, "no label"),
    )
)
EXAMPLES: Examples = ({"num_stories": 2, "max_facts": 10},)
VERSION = 2
