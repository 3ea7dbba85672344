"""Questions about one or several documents, scored by token F1.

Prompts: LongBench/config/dataset2prompt.json of github.com/THUDM/LongBench@2e00731, with its
spelling "asconcisely" and its space after two newlines, which LCEG keeps.
"""

from __future__ import annotations

from functools import partial

from lce_core.benchmarks.longbench._task import Task, without_classes
from lce_core.benchmarks.longbench.metrics import token_f1

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
_Question = partial(Task, metric=without_classes(token_f1), first_line_rules=frozenset({"lceg"}))

TASKS = (
    _Question("narrativeqa", _STORY, 128, num_rows=200, mean_words=18409),
    _Question("qasper", _ARTICLE, 128, num_rows=200, mean_words=3619),
    _Question("multifieldqa_en", _TEXT, 64, num_rows=150, mean_words=4559),
    _Question("hotpotqa", _PASSAGES, 32, num_rows=200, mean_words=9151),
    _Question("2wikimqa", _PASSAGES, 32, num_rows=200, mean_words=4887),
    _Question("musique", _PASSAGES, 32, num_rows=200, mean_words=11214),
)
