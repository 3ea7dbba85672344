"""Read the questions of TREC with their 50 fine classes, from the data set `trec`."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from lce_core.benchmarks import DataSet, read_text
from lce_core.errors import DataError, UnavailableError

TREC = DataSet(
    "trec",
    ("train.txt", "test.txt"),
    "github.com/nltk/nltk_data (packages/corpora/qc.zip): train.txt and test.txt, which are"
    " train_5500.label and TREC_10.label of Li and Roth",
)
NUM_QUESTIONS = {"train.txt": 5452, "test.txt": 500}
NUM_REPEATED = 10
"""Number of published test questions that are also in the train file; they are left out."""
LABELS = {
    "ENTY:food": "Food",
    "NUM:date": "Date",
    "NUM:ord": "Order, rank",
    "NUM:speed": "Speed",
    "ENTY:dismed": "Disease and medicine",
    "ENTY:word": "Word with a special property",
    "ABBR:abb": "Abbreviation",
    "ENTY:lang": "Language",
    "ENTY:letter": "Letter like a-z",
    "ENTY:other": "Other entity",
    "ENTY:animal": "Animal",
    "ABBR:exp": "Expression abbreviated",
    "NUM:money": "Price",
    "ENTY:techmeth": "Techniques and method",
    "ENTY:instru": "Musical instrument",
    "LOC:mount": "Mountain",
    "ENTY:currency": "Currency name",
    "ENTY:event": "Event",
    "ENTY:product": "Product",
    "LOC:state": "State",
    "HUM:ind": "Individual",
    "ENTY:body": "Organ of body",
    "DESC:reason": "Reason",
    "DESC:manner": "Manner of an action",
    "LOC:city": "City",
    "ENTY:religion": "Religion",
    "ENTY:cremat": "Invention, book and other creative piece",
    "NUM:dist": "Distance, linear measure",
    "NUM:temp": "Temperature",
    "NUM:code": "Postcode or other code",
    "NUM:volsize": "Size, area and volume",
    "ENTY:sport": "Sport",
    "LOC:country": "Country",
    "LOC:other": "Other location",
    "NUM:period": "Lasting time of somethin",
    "ENTY:termeq": "Equivalent term",
    "DESC:desc": "Description of something",
    "NUM:weight": "Weight",
    "ENTY:veh": "Vehicle",
    "ENTY:color": "Color",
    "NUM:other": "Other number",
    "DESC:def": "Definition of something",
    "ENTY:substance": "Element and substance",
    "HUM:desc": "Description of a person",
    "ENTY:symbol": "Symbols and sign",
    "NUM:count": "Number of something",
    "ENTY:plant": "Plant",
    "NUM:perc": "Percent, fraction",
    "HUM:gr": "Group or organization of person",
    "HUM:title": "Title of a person",
}
"""Class names in the prompts of LongBench and LCEG, by class code; "somethin" is theirs. The names
have the order of LongBench's column all_classes, on which the score of an answer that names several
classes can depend (`class_share`)."""
CLASSES = tuple(LABELS.values())


class Question(NamedTuple):
    """A question and the name of its class."""

    text: str
    label: str


def trec_questions(folders: Mapping[str, Path]) -> tuple[list[Question], list[Question]]:
    """Return (train questions to show, test questions to ask that are not in the train file)."""
    found = {file.name: file for file in TREC.files(folders)}
    for name in TREC.patterns:
        if name not in found:
            raise TREC.missing(name)
    shown, asked = (_questions(found[name]) for name in TREC.patterns)
    for name, questions in zip(TREC.patterns, (shown, asked), strict=True):
        TREC.require_rows(folders, name, len(questions), NUM_QUESTIONS[name])
    known = {question.text for question in shown}
    return shown, [question for question in asked if question.text not in known]


def drawn_questions(
    folders: Mapping[str, Path], num_shown: int, num_asked: int, rng: np.random.Generator
) -> tuple[list[Question], list[Question]]:
    """Return (all train questions, `num_asked` random test questions in the order of the file)."""
    shown, asked = trec_questions(folders)
    for wanted, found, what, parameter in (
        (num_shown, len(shown), "examples", "shots"),
        (num_asked, len(asked), "questions to ask", "num_questions"),
    ):
        if wanted > found:
            raise UnavailableError(
                "data set 'trec'",
                f"{found} {what}",
                f"at least {wanted}",
                f"set {parameter} to at most {found} in the study, or get the whole data set",
            )
    drawn = np.sort(rng.permutation(len(asked))[:num_asked])
    return shown, [asked[index] for index in drawn]


def _questions(file: Path) -> list[Question]:
    questions = []
    for number, line in enumerate(read_text(file, "latin-1").split("\n"), start=1):
        code, _, text = line.partition(" ")
        if code in LABELS and text.strip():
            questions.append(Question(text.strip(), LABELS[code]))
        elif line:
            raise DataError(
                f"{file}: line {number}",
                repr(line[:60]),
                "a class code such as NUM:date, a space and a question",
                "use the file as published",
            )
    return questions
