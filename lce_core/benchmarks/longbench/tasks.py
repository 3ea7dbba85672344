"""The 16 English tasks of LongBench: prompts, metrics and stopping rules.

The prompts are copied from LongBench/config/dataset2prompt.json of
github.com/THUDM/LongBench@2e00731. Its misspelling "asconcisely", the space after two newlines and
the space at the end of the synthetic tasks are intended: LCEG also keeps them.

Metrics score one prediction (a generated answer) against one reference answer. Source:
LongBench/metrics.py and LongBench/eval.py. Applied to the published predictions, these functions
reproduce the published scores to the second digit.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import partial
from typing import Literal

from rouge import Rouge

from lce_core.errors import DataError
from lce_core.evaluation.metrics import content_words

_ROUGE = Rouge(metrics=["rouge-l"])


def first_line(text: str) -> str:
    return text.lstrip("\n").split("\n", 1)[0]


def has_complete_line(text: str) -> bool:
    return "\n" in text.lstrip("\n")


def token_f1(prediction: str, reference: str) -> float:
    """Return the F1 score of the content words."""
    found, wanted = content_words(prediction), content_words(reference)
    common = (Counter(found) & Counter(wanted)).total()
    return 2 * common / (len(found) + len(wanted)) if common else 0.0


def rouge_l(prediction: str, reference: str) -> float:
    """Return the ROUGE-L F score of the package `rouge`, 0..1; 0 if either text has no words.

    The package splits sentences at full stops and takes the union of their longest common
    subsequences, with each distinct word once. Like LongBench, this returns 0 where it fails.
    """
    try:
        scores = _ROUGE.get_scores(prediction, reference)
    except (ValueError, RecursionError):
        return 0.0
    return float(scores[0]["rouge-l"]["f"])


def class_share(prediction: str, reference: str, classes: Sequence[str]) -> float:
    """Return 1 / (number of class names in the prediction) if the reference is among them, else 0.

    A class name that is a part of the reference does not count. LongBench removes such names from a
    list while it iterates over that list, which skips the name after each removed one. This
    function does the same, so scores depend on the order of `classes`.
    """
    named = [name for name in classes if name in prediction]
    # Removing while iterating reproduces LongBench.
    for name in named:
        if name in reference and name != reference:
            named.remove(name)
    return 1 / len(named) if reference in named else 0.0


def number_share(prediction: str, reference: str) -> float:
    """Return the fraction (0..1) of the numbers in the prediction that equal the reference."""
    numbers = re.findall(r"\d+", prediction)
    return numbers.count(reference) / len(numbers) if numbers else 0.0


def paragraph_share(prediction: str, reference: str) -> float:
    """Return the fraction of numbers that equal that of the reference, such as "Paragraph 15"."""
    paragraph = re.search(r"Paragraph (\d+)", reference)
    if paragraph is None:
        raise DataError(
            "passage retrieval",
            f"the answer {reference!r}",
            "an answer such as 'Paragraph 15'",
            "get the data set `longbench` again",
        )
    return number_share(prediction, paragraph[1])


def code_similarity(prediction: str, reference: str) -> float:
    """Return the similarity (0..1, two digits) of the prediction's first code line and reference.

    A code line contains no backtick, "#" or "//". The published scores were computed by fuzzywuzzy
    without python-Levenshtein, which returns difflib's 2 M / T as here. With python-Levenshtein,
    fuzzywuzzy returns an edit-distance ratio, which differs.
    """
    return round(100 * SequenceMatcher(None, _code_line(prediction), reference).ratio()) / 100


def has_complete_code_line(text: str) -> bool:
    return any(map(_is_code, text.lstrip("\n").split("\n")[:-1]))


def _code_line(text: str) -> str:
    return next(filter(_is_code, text.lstrip("\n").split("\n")), "")


def _is_code(line: str) -> bool:
    return not any(mark in line for mark in ("`", "#", "//"))


FirstLine = Literal["longbench", "lceg"]
AnswerMetric = Callable[[str, str, Sequence[str]], float]
"""Function of (prediction, one reference answer, class names) that returns a score 0..1."""


@dataclass(frozen=True)
class Task:
    """One task of LongBench: its prompt, and the scoring of answers."""

    name: str
    prompt: str
    max_new_tokens: int
    metric: AnswerMetric
    num_rows: int
    mean_words: int
    """Mean words of a row's context, as counted in LongBench's paper."""
    first_line_rules: frozenset[FirstLine] = frozenset()
    final: Callable[[str], bool] = lambda _: False
    """True for an answer whose score more text cannot change, if whole answers are scored;
    otherwise generation stops after the first line."""

    def question(self, context: str, given: str) -> str:
        return self.prompt.format(context=context, input=given)

    def complete(self, rule: FirstLine) -> Callable[[str], bool]:
        return has_complete_line if rule in self.first_line_rules else self.final


def without_classes(metric: Callable[[str, str], float]) -> AnswerMetric:
    return lambda prediction, reference, _: metric(prediction, reference)


_STORY = (
    "You are given a story, which can be either a novel or a movie script, and a question. Answer"
    " the question asconcisely as you can, using a single phrase if possible. Do not provide any"
    " explanation.\n\nStory: {context}\n\nNow, answer the question based on the story asconcisely"
    " as you can, using a single phrase if possible. Do not provide any explanation.\n\n"
    "Question: {input}\n\nAnswer:"
)
_ARTICLE_RULES = (
    " as concisely as you can, using a single phrase or sentence if possible. If the question"
    ' cannot be answered based on the information in the article, write "unanswerable". If the'
    ' question is a yes/no question, answer "yes", "no", or "unanswerable". Do not provide'
    " any explanation.\n\n"
)
_ARTICLE = (
    "You are given a scientific article and a question. Answer the question"
    + _ARTICLE_RULES
    + "Article: {context}\n\n Answer the question based on the above article"
    + _ARTICLE_RULES
    + "Question: {input}\n\nAnswer:"
)
_TEXT = (
    "Read the following text and answer briefly.\n\n{context}\n\nNow, answer the following question"
    " based on the above text, only give me the answer and do not output any other words.\n\n"
    "Question: {input}\nAnswer:"
)
_ONLY_THE_ANSWER = (
    "Answer the question based on the given passages. Only give me the answer and do not output"
    " any other words.\n\n"
)
_PASSAGES = (
    _ONLY_THE_ANSWER
    + "The following are given passages.\n{context}\n\n"
    + _ONLY_THE_ANSWER
    + "Question: {input}\nAnswer:"
)
_REPORT = (
    "You are given a report by a government agency. Write a one-page summary of the report.\n\n"
    "Report:\n{context}\n\nNow, write a one-page summary of the report.\n\nSummary:"
)
_MEETING = (
    "You are given a meeting transcript and a query containing a question or instruction. Answer"
    " the query in one or more sentences.\n\nTranscript:\n{context}\n\nNow, answer the query based"
    " on the above meeting transcript in one or more sentences.\n\nQuery: {input}\nAnswer:"
)
_NEWS = (
    "You are given several news passages. Write a one-page summary of all news. \n\n"
    "News:\n{context}\n\nNow, write a one-page summary of all the news.\n\nSummary:"
)
QUESTION_TYPE = (
    "Please determine the type of the question below. Here are some examples of questions.\n\n"
    "{context}\n{input}"
)
_TRIVIA = (
    "Answer the question based on the given passage. Only give me the answer and do not output any"
    " other words. The following are some examples.\n\n{context}\n\n{input}"
)
_DIALOGUES = (
    "Summarize the dialogue into a few short sentences. The following are some examples.\n\n"
    "{context}\n\n{input}"
)
_COUNT = (
    "There are some paragraphs below sourced from Wikipedia. Some of them may be duplicates. Please"
    " carefully read these paragraphs and determine how many unique paragraphs there are after"
    " removing duplicates. In other words, how many non-repeating paragraphs are there in total?"
    "\n\n{context}\n\nPlease enter the final count of unique paragraphs after removing duplicates."
    " The output format should only contain the number, such as 1, 2, 3, and so on.\n\n"
    "The final answer is: "
)
_RETRIEVAL = (
    "Here are 30 paragraphs from Wikipedia, along with an abstract. Please determine which"
    " paragraph the abstract is from.\n\n{context}\n\nThe following is an abstract.\n\n{input}\n\n"
    "Please enter the number of the paragraph that the abstract is from. The answer format must be"
    ' like "Paragraph 1", "Paragraph 2", etc.\n\nThe answer is: '
)
_FILE = "Please complete the code given below. \n{context}Next line of code:\n"
_REPOSITORY = "Please complete the code given below. \n{context}{input}Next line of code:\n"

_Question = partial(Task, metric=without_classes(token_f1), first_line_rules=frozenset({"lceg"}))
_Summary = partial(Task, max_new_tokens=512, metric=without_classes(rouge_l), num_rows=200)
_Examples = partial(Task, num_rows=200, first_line_rules=frozenset({"longbench", "lceg"}))
_Numbers = partial(Task, max_new_tokens=32, num_rows=200, first_line_rules=frozenset({"lceg"}))
_Line = partial(
    Task,
    max_new_tokens=64,
    metric=without_classes(code_similarity),
    num_rows=500,
    final=has_complete_code_line,
)

_TASKS = (
    _Question("narrativeqa", _STORY, 128, num_rows=200, mean_words=18409),
    _Question("qasper", _ARTICLE, 128, num_rows=200, mean_words=3619),
    _Question("multifieldqa_en", _TEXT, 64, num_rows=150, mean_words=4559),
    _Question("hotpotqa", _PASSAGES, 32, num_rows=200, mean_words=9151),
    _Question("2wikimqa", _PASSAGES, 32, num_rows=200, mean_words=4887),
    _Question("musique", _PASSAGES, 32, num_rows=200, mean_words=11214),
    _Summary("gov_report", _REPORT, mean_words=8734),
    _Summary("qmsum", _MEETING, mean_words=10614),
    _Summary("multi_news", _NEWS, mean_words=2113),
    _Examples("trec", QUESTION_TYPE, 64, class_share, mean_words=5177),
    _Examples("triviaqa", _TRIVIA, 32, without_classes(token_f1), mean_words=8209),
    _Examples("samsum", _DIALOGUES, 128, without_classes(rouge_l), mean_words=6258),
    _Numbers("passage_count", _COUNT, metric=without_classes(number_share), mean_words=11141),
    _Numbers(
        "passage_retrieval_en", _RETRIEVAL, metric=without_classes(paragraph_share), mean_words=9289
    ),
    _Line("lcc", _FILE, mean_words=1235),
    _Line("repobench-p", _REPOSITORY, mean_words=4206),
)
TASKS: dict[str, Task] = {task.name: task for task in _TASKS}
