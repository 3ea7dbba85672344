"""The 16 English tasks of LongBench: prompts, scoring and stopping rules.

The prompts are copied from LongBench/config/dataset2prompt.json of
github.com/THUDM/LongBench@2e00731. Its misspelling "asconcisely", the space after two newlines and
the space at the end of the synthetic tasks are intended: LCEG also keeps them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from lce_core.benchmarks.longbench.metrics import (
    class_share,
    code_similarity,
    has_complete_code_line,
    has_complete_line,
    number_share,
    paragraph_share,
    rouge_l,
    token_f1,
)

FirstLine = Literal["longbench", "lceg"]
"""Repository whose rule selects the tasks that score only the first line of an answer."""
AnswerMetric = Callable[[str, str, Sequence[str]], float]
"""Function of (prediction, one reference answer, class names) that returns a score 0..1."""


@dataclass(frozen=True)
class Task:
    """One task of LongBench: its prompt, and the scoring of answers."""

    name: str
    prompt: str
    """Template with the placeholders {context} and {input}."""
    max_new_tokens: int
    metric: AnswerMetric
    num_rows: int
    mean_words: int
    """Mean words of a row's context, as counted in LongBench's paper."""
    first_line_rules: frozenset[FirstLine] = frozenset()
    """Repositories (values of `first_line`) that score only an answer's first line in this task."""
    final: Callable[[str], bool] = lambda _: False
    """True for an answer whose score more text cannot change, if whole answers are scored;
    otherwise generation stops after the first line."""

    def question(self, context: str, given: str) -> str:
        return self.prompt.format(context=context, input=given)

    def complete(self, rule: FirstLine) -> Callable[[str], bool]:
        """Return the stopping rule, which is True if more text cannot change an answer's score."""
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
