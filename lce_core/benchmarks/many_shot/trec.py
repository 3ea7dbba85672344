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
    "ABBR:abb": "Abbreviation",
    "ABBR:exp": "Expression abbreviated",
    "DESC:def": "Definition of something",
    "DESC:desc": "Description of something",
    "DESC:manner": "Manner of an action",
    "DESC:reason": "Reason",
    "ENTY:animal": "Animal",
    "ENTY:body": "Organ of body",
    "ENTY:color": "Color",
    "ENTY:cremat": "Invention, book and other creative piece",
    "ENTY:currency": "Currency name",
    "ENTY:dismed": "Disease and medicine",
    "ENTY:event": "Event",
    "ENTY:food": "Food",
    "ENTY:instru": "Musical instrument",
    "ENTY:lang": "Language",
    "ENTY:letter": "Letter like a-z",
    "ENTY:other": "Other entity",
    "ENTY:plant": "Plant",
    "ENTY:product": "Product",
    "ENTY:religion": "Religion",
    "ENTY:sport": "Sport",
    "ENTY:substance": "Element and substance",
    "ENTY:symbol": "Symbols and sign",
    "ENTY:techmeth": "Techniques and method",
    "ENTY:termeq": "Equivalent term",
    "ENTY:veh": "Vehicle",
    "ENTY:word": "Word with a special property",
    "HUM:desc": "Description of a person",
    "HUM:gr": "Group or organization of person",
    "HUM:ind": "Individual",
    "HUM:title": "Title of a person",
    "LOC:city": "City",
    "LOC:country": "Country",
    "LOC:mount": "Mountain",
    "LOC:other": "Other location",
    "LOC:state": "State",
    "NUM:code": "Postcode or other code",
    "NUM:count": "Number of something",
    "NUM:date": "Date",
    "NUM:dist": "Distance, linear measure",
    "NUM:money": "Price",
    "NUM:ord": "Order, rank",
    "NUM:other": "Other number",
    "NUM:perc": "Percent, fraction",
    "NUM:period": "Lasting time of somethin",
    "NUM:speed": "Speed",
    "NUM:temp": "Temperature",
    "NUM:volsize": "Size, area and volume",
    "NUM:weight": "Weight",
}
"""Class names in the prompts of LongBench and LCEG, by class code; "somethin" is theirs."""
_ORDER = (
    "ENTY:food NUM:date NUM:ord NUM:speed ENTY:dismed ENTY:word ABBR:abb ENTY:lang ENTY:letter"
    " ENTY:other ENTY:animal ABBR:exp NUM:money ENTY:techmeth ENTY:instru LOC:mount ENTY:currency"
    " ENTY:event ENTY:product LOC:state HUM:ind ENTY:body DESC:reason DESC:manner LOC:city"
    " ENTY:religion ENTY:cremat NUM:dist NUM:temp NUM:code NUM:volsize ENTY:sport LOC:country"
    " LOC:other NUM:period ENTY:termeq DESC:desc NUM:weight ENTY:veh ENTY:color NUM:other DESC:def"
    " ENTY:substance HUM:desc ENTY:symbol NUM:count ENTY:plant NUM:perc HUM:gr HUM:title"
)
CLASSES = tuple(LABELS[code] for code in _ORDER.split())
"""Order of LongBench's column all_classes, on which the score of an answer that names several
classes can depend (`class_share`)."""


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
