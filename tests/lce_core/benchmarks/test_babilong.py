"""BABILong: a reader that shares no code with the stories answers every question from the text."""

import re
from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest

from lce_core.benchmarks.babilong import LABELS, only_label, story
from lce_core.contracts.benchmark_cases import held_out, words_tokenizer
from tests.support.cells import benchmark, request

MOVES = r"(\w+) (?:moved|went|travelled|journeyed|went back) to the (\w+)\."
TAKES = r"(\w+) (?:took|got|grabbed|picked up) the (\w+)\."
DROPS = r"(\w+) (?:dropped|left|put down) the (\w+)\."
GIFTS = r"(\w+) (?:gave|handed|passed) the (\w+) to (\w+)\."
FACT = "|".join((MOVES, TAKES, DROPS, GIFTS, r"The \w+ is \w+ of the \w+\."))
OPPOSITE = {"north": "south", "south": "north", "east": "west", "west": "east"}


def read(sentences: list[str]) -> dict[str, list[str]]:
    """Places of each person and object, in order; an object moves with its holder."""
    places: dict[str, list[str]] = defaultdict(list)
    holder: dict[str, str] = {}
    for sentence in sentences:
        if found := re.fullmatch(MOVES, sentence):
            person, place = found.groups()
            places[person].append(place)
            for thing in [thing for thing, by in holder.items() if by == person]:
                places[thing].append(place)
        elif found := re.fullmatch(TAKES, sentence):
            person, thing = found.groups()
            holder[thing] = person
            if places[person] and places[thing][-1:] != places[person][-1:]:
                places[thing].append(places[person][-1])
        elif found := re.fullmatch(DROPS, sentence):
            person, thing = found.groups()
            assert holder.pop(thing) == person
        else:
            giver, thing, receiver = re.fullmatch(GIFTS, sentence).groups()
            assert holder[thing] == giver
            holder[thing] = receiver
    return places


def answers(sentences: list[str], question: str) -> set[str]:
    if found := re.fullmatch(r"What is (\w+) of the (\w+)\?", question):
        return relations(sentences, lambda a, way, b: {a} if (way, b) == found.groups() else set())
    if found := re.fullmatch(r"What is the (\w+) (\w+) of\?", question):
        return relations(sentences, lambda a, way, b: {b} if (a, way) == found.groups() else set())
    gifts = [m.groups() for one in sentences if (m := re.fullmatch(GIFTS, one))]
    if found := re.fullmatch(r"Who gave the (\w+) to (\w+)\?", question):
        return {g for g, t, r in gifts if (t, r) == found.groups()}
    if found := re.fullmatch(r"What did (\w+) give to (\w+)\?", question):
        return {t for g, t, r in gifts if (g, r) == found.groups()}
    if found := re.fullmatch(r"Who did (\w+) give the (\w+) to\?", question):
        return {r for g, t, r in gifts if (g, t) == found.groups()}
    if found := re.fullmatch(r"Where was the (\w+) before the (\w+)\?", question):
        places = read(sentences)[found[1]]
        return {places[i - 1] for i, place in enumerate(places) if i and place == found[2]}
    (what,) = re.fullmatch(r"Where is (?:the )?(\w+)\?", question).groups()
    return {read(sentences)[what][-1]}


def relations(sentences, chosen) -> set[str]:
    found = set()
    for sentence in sentences:
        a, way, b = re.fullmatch(r"The (\w+) is (\w+) of the (\w+)\.", sentence).groups()
        found |= chosen(a, way, b) | chosen(b, OPPOSITE[way], a)
    return found


@pytest.mark.parametrize("task", LABELS)
def test_stories_answer_their_questions_without_ambiguity(task):
    seen = set()
    for seed in range(60):
        sentences, questions = story(task, 20, 2, np.random.default_rng(seed))
        assert len({one.text for one in questions}) == 2
        for one in questions:
            assert answers(sentences, one.text) == {one.answer}, (sentences, one)
            assert one.answer in LABELS[task]
            assert sentences.count(one.evidence) == 1
            assert one.answer in one.evidence
            seen.add(one.answer)
    assert seen == {*LABELS[task]}


@pytest.mark.parametrize("task", LABELS)
def test_prompts_fill_the_length_and_hold_the_story_in_its_order(task):
    asked = benchmark("babilong", num_stories=3, max_facts=12)
    tokenizer = words_tokenizer()
    cell = request(asked, 1000, task=task, tokenizer=tokenizer, held_out=held_out(in_words=True))
    prompts = asked.build(cell)
    assert len(prompts) == 6
    for prompt in prompts:
        text = tokenizer.decode(prompt.ids, skip_special_tokens=True)
        context = text.partition("<context>\n")[2].partition("\n</context>")[0]
        sentences = [line for line in context.split("\n") if re.fullmatch(FACT, line)]
        question = text.rpartition("Question: ")[2].removesuffix("\nAnswer:")
        assert answers(sentences, question) == {prompt.reference}
        assert prompt.reference in prompt.labels
        assert not [label for label in prompt.labels if label in question]
        assert 960 <= len(prompt.ids) + asked.answer_tokens <= 1000
    assert prompts[0].context == prompts[1].context != prompts[2].context
    names = [prompt.cluster for prompt in prompts + asked.build(replace(cell, seed=1))]
    assert names[::2] == names[1::2]
    assert len({*names}) == 6, "another seed draws other stories"


def test_a_label_counts_within_a_word_of_the_first_sentence_alone():
    assert only_label(" gardens. office", "garden", ("garden", "office")) == 1
    assert only_label(" nowhere. garden", "garden", ("garden", "office")) == 0
