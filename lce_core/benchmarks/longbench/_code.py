"""The next line of a program: similarity of the first line of code in the answer.

Prompts: LongBench/config/dataset2prompt.json of github.com/THUDM/LongBench@2e00731.
"""

from __future__ import annotations

from functools import partial

from lce_core.benchmarks.longbench._task import Task, without_classes
from lce_core.benchmarks.longbench.metrics import code_similarity, has_complete_code_line

_FILE = "Please complete the code given below. \n{context}Next line of code:\n"
_REPOSITORY = "Please complete the code given below. \n{context}{input}Next line of code:\n"
_Line = partial(
    Task,
    max_new_tokens=64,
    metric=without_classes(code_similarity),
    num_rows=500,
    final=has_complete_code_line,
)

TASKS = (
    _Line("lcc", _FILE, mean_words=1235),
    _Line("repobench-p", _REPOSITORY, mean_words=4206),
)
