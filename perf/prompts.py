"""Measure the time to build a benchmark's prompts, and to read them from the store's cache.

Prompts are built once and read several times (the median counts), with the toy model's tokenizer,
which has a token for every byte. A benchmark whose data set has no folder in
`--data-folder NAME=FOLDER ...` is skipped.
"""

import statistics
import sys
import tempfile
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from measuring import Row, Timed, measure, timed

from lce_core.benchmarks._prompted import cache as prompt_cache
from lce_core.benchmarks._prompted.cache import PromptCache
from lce_core.errors import UnavailableError
from tests.support.cells import benchmark, request
from tests.support.stored_prompts import same


def rows(options: Namespace) -> Iterator[Row]:
    count = {"num_samples": options.samples}
    for name, task, parameters in (
        ("ruler", "niah_multikey_1", count),
        ("ruler", "niah_multikey_3", count),
        ("ruler", "vt", count),
        ("ruler", "cwe", count),
        ("many_shot", "shots_75", {"permutations": 1, "num_questions": options.questions}),
        ("needle", "single", {}),
        ("passkey", "single", count),
        ("long_eval", "lines", count),
        ("longbench", "multi_news", count),
    ):
        try:
            yield {"prompts": f"{name} {task}", **figures(options, name, task, parameters)}
        except UnavailableError as error:
            print(f"{name} {task} skipped: {error}", file=sys.stderr)


def figures(options: Namespace, name: str, task: str, parameters: dict[str, Any]) -> Row:
    asked: Any = benchmark(name, **parameters)
    folders = dict(entry.split("=", 1) for entry in options.data_folder)
    cell = request(
        asked,
        options.length,
        task=task,
        data_folders={name: Path(path) for name, path in folders.items()},
        prompt_folder=Path(tempfile.mkdtemp(dir=options.folder)),
    )

    def prompts() -> Timed:
        # Without prompts cached in memory.
        prompt_cache.CACHE = PromptCache(max_tokens=0, dear_seconds=0)
        return timed(lambda: asked.prompts(cell))

    built, *reads = [prompts() for _ in range(1 + options.reads)]
    assert any(cell.prompt_folder.iterdir()), "no prompts in the cache"
    assert all(same(built.result, read.result) for read in reads)
    seconds = statistics.median(read.wall for read in reads)
    return {"built, s": built.wall, "read, s": seconds, "ratio": built.wall / seconds}


if __name__ == "__main__":
    measure(__doc__, rows, data_folder=(), length=8192, samples=20, questions=200, reads=5)
