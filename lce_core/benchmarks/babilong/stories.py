"""Generate stories in the form of bAbI's tasks 1 to 5, with questions about their last state.

Persons hold only what they took and drop only what they hold. A question is kept only if the story
answers it without ambiguity and the sentence with its answer occurs once. Source: Weston et al.
2015 (arXiv:1502.05698); the sentences are made here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from lce_core.errors import SpecError

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


@dataclass(frozen=True)
class Question:
    """A question about a story, its answer, and the sentence that contains the answer."""

    text: str
    answer: str
    evidence: str


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
    """Return the sentences of a story and `num_questions` distinct questions about its end.

    A story has two sentences in qa4, else a random number from max_facts / 2 to max_facts.
    """
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


def _walks(
    task: str, num_facts: int, rng: np.random.Generator
) -> tuple[list[str], Iterator[Question]]:
    world = World(rng)
    while len(world.sentences) < num_facts:
        person = world.one(WALKERS)
        if task == "qa1" or person not in world.stays or rng.random() < 0.6:
            world.move(person)
        else:
            _handle(world, person)
    asked = {"qa1": _where_is_a_person, "qa2": _where_is_a_thing, "qa3": _where_was_a_thing}
    return world.sentences, asked[task](world)


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


def _where_is_a_person(world: World) -> Iterator[Question]:
    for person in WALKERS:
        if person in world.stays:
            yield Question(f"Where is {person}?", *world.stays[person][-1])


def _where_is_a_thing(world: World) -> Iterator[Question]:
    for thing in OBJECTS:
        if thing in world.stays:
            yield Question(f"Where is the {thing}?", *world.stays[thing][-1])


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


def _relations(_: str, __: int, rng: np.random.Generator) -> tuple[list[str], Iterator[Question]]:
    """Tell of two places relative to a third (qa4), in directions that are not opposite.

    If they were, "the office is north of the garden" would answer both questions.
    """
    first, middle, last = (PLACES[place] for place in rng.permutation(len(PLACES))[:3])
    names = tuple(_OPPOSITE)
    one = names[int(rng.integers(len(names)))]
    rest = [name for name in names if name != _OPPOSITE[one]]
    other = rest[int(rng.integers(len(rest)))]
    facts = [
        f"The {first} is {one} of the {middle}.",
        f"The {middle} is {other} of the {last}.",
    ]
    asked = (
        Question(f"What is {one} of the {middle}?", first, facts[0]),
        Question(f"What is the {middle} {other} of?", last, facts[1]),
    )
    return [facts[place] for place in rng.permutation(2)], iter(asked)


def _gifts(
    _: str, num_facts: int, rng: np.random.Generator
) -> tuple[list[str], Iterator[Question]]:
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
    wordings: tuple[tuple[int, Callable[[str, str, str], str]], ...] = (
        (0, lambda _, thing, receiver: f"Who gave the {thing} to {receiver}?"),
        (1, lambda giver, _, receiver: f"What did {giver} give to {receiver}?"),
        (2, lambda giver, thing, _: f"Who did {giver} give the {thing} to?"),
    )
    for asked, wording in wordings:
        texts = [wording(*gift[:3]) for gift in gifts]
        for text, gift in zip(texts, gifts, strict=True):
            if texts.count(text) == 1:
                yield Question(text, gift[asked], gift[3])


_TOLD = {"qa1": _walks, "qa2": _walks, "qa3": _walks, "qa4": _relations, "qa5": _gifts}
