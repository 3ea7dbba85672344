"""Count distinct paragraphs, or find an abstract's paragraph; score the share of right numbers.

Prompts: LongBench/config/dataset2prompt.json of github.com/THUDM/LongBench@2e00731; both end with a
space.
"""

from __future__ import annotations

from functools import partial

from lce_core.benchmarks.longbench._task import Task, without_classes
from lce_core.benchmarks.longbench.metrics import number_share, paragraph_share

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
_Numbers = partial(Task, max_new_tokens=32, num_rows=200, first_line_rules=frozenset({"lceg"}))

TASKS = (
    _Numbers("passage_count", _COUNT, metric=without_classes(number_share), mean_words=11141),
    _Numbers(
        "passage_retrieval_en", _RETRIEVAL, metric=without_classes(paragraph_share), mean_words=9289
    ),
)
