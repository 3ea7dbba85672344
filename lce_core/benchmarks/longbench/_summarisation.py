"""Summaries of reports, meetings and news, scored by ROUGE-L over the whole answer.

Prompts: LongBench/config/dataset2prompt.json of github.com/THUDM/LongBench@2e00731.
"""

from __future__ import annotations

from functools import partial

from lce_core.benchmarks.longbench._task import Task, without_classes
from lce_core.benchmarks.longbench.metrics import rouge_l

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
_Summary = partial(Task, max_new_tokens=512, metric=without_classes(rouge_l), num_rows=200)

TASKS = (
    _Summary("gov_report", _REPORT, mean_words=8734),
    _Summary("qmsum", _MEETING, mean_words=10614),
    _Summary("multi_news", _NEWS, mean_words=2113),
)
