"""Measure the time to build a benchmark's prompts, and to read them from the store's cache.

Prompts are built once and read several times (the median counts), with the toy model's tokenizer,
which has a token for every byte. The script checks that read prompts equal built ones. A benchmark
whose data set has no --data-folder is skipped.

    python perf/prompts.py [--data-folder NAME=FOLDER ...] [--length TOKENS] [--samples N]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from lce_core.benchmarks import BENCHMARKS, CellRequest
from lce_core.benchmarks._prompted import cache as prompt_cache
from lce_core.benchmarks._prompted.cache import PromptCache
from lce_core.errors import UnavailableError
from lce_core.models import MODELS
from lce_core.store.records import environment

BASE = MODELS.parse({"name": "toy_llama"}, "perf")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data-folder", action="append", default=[], metavar="NAME=FOLDER")
    parser.add_argument("--length", type=int, default=8192)
    parser.add_argument("--samples", type=int, default=20)
    parser.add_argument("--questions", type=int, default=200)
    parser.add_argument("--reads", type=int, default=5)
    options = parser.parse_args()
    print("| prompts | number | tokens | built, s | read, s | ratio | MB |")
    print("|---|--:|--:|--:|--:|--:|--:|")
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
            print(row(options, name, task, parameters), flush=True)
        except UnavailableError as error:
            print(f"| {name} {task} | {str(error).split('.')[0]} |")
    where = environment()
    print(f"\n{vars(options)}")
    print(f"{where['cpu']}, {where['cpu_count']} cores, {where['git']}")


def row(options: argparse.Namespace, name: str, task: str, parameters: dict[str, Any]) -> str:
    benchmark: Any = BENCHMARKS.parse({"name": name, **parameters}, "perf")
    folders = dict(entry.split("=", 1) for entry in options.data_folder)
    with tempfile.TemporaryDirectory() as folder:
        request = CellRequest(
            model=None,  # type: ignore[arg-type]
            tokenizer=BASE.tokenizer(None),
            base_model=BASE,
            held_out=None,  # type: ignore[arg-type]
            task=task,
            eval_length=options.length,
            seed=0,
            data_folders={name: Path(path) for name, path in folders.items()},
            prompt_folder=Path(folder),
        )
        built, expected = timed(lambda: benchmark.prompts(request))
        reads = [timed(lambda: benchmark.prompts(request)) for _ in range(options.reads)]
        (file,) = Path(folder).iterdir()
        size = file.stat().st_size
    for _, found in reads:
        for one, other in zip(expected, found, strict=True):
            assert np.array_equal(one.ids, other.ids)
            assert replace(one, ids=other.ids).__dict__ == other.__dict__
    read = statistics.median(taken for taken, _ in reads)
    num_tokens = sum(len(prompt.ids) for prompt in expected)
    return (
        f"| {name} {task} | {len(expected)} | {num_tokens:,} | {built:.2f} | {read:.4f}"
        f" | {built / read:.0f} | {size / 1e6:.2f} |"
    )


def timed(run: Callable[[], Any]) -> tuple[float, Any]:
    """Return the seconds and the result of one call, without prompts cached in memory."""
    prompt_cache.CACHE = PromptCache(max_tokens=0, dear_seconds=0)
    clock = time.perf_counter()
    found = run()
    return time.perf_counter() - clock, found


if __name__ == "__main__":
    main()
