"""Learning from examples in the context: only the first line of the answer is scored.

Prompts: LongBench/config/dataset2prompt.json of github.com/THUDM/LongBench@2e00731.
"""

from __future__ import annotations

from functools import partial

from lce_core.benchmarks.longbench._task import Task, without_classes
from lce_core.benchmarks.longbench.metrics import class_share, rouge_l, token_f1

QUESTION_TYPE = (
    "Please determine the type of the question below. Here are some examples of questions.\n\n"
    "{context}\n{input}"
)
_PASSAGES = (
    "Answer the question based on the given passage. Only give me the answer and do not output any"
    " other words. The following are some examples.\n\n{context}\n\n{input}"
)
_DIALOGUES = (
    "Summarize the dialogue into a few short sentences. The following are some examples.\n\n"
    "{context}\n\n{input}"
)
_Examples = partial(Task, num_rows=200, first_line_rules=frozenset({"longbench", "lceg"}))

TASKS = (
    _Examples("trec", QUESTION_TYPE, 64, class_share, mean_words=5177),
    _Examples("triviaqa", _PASSAGES, 32, without_classes(token_f1), mean_words=8209),
    _Examples("samsum", _DIALOGUES, 128, without_classes(rouge_l), mean_words=6258),
)
