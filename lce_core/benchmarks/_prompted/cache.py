"""Cache of built prompts, so that all extension methods of a study reuse the prompts of a cell.

A lookup tries the memory of this process first, then the folder `prompts` of the store, which all
workers and later runs share.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.metadata
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lce_core.benchmarks._base import Benchmark, CellRequest
from lce_core.benchmarks._prompted.files import read_prompts, write_prompts
from lce_core.benchmarks._prompted.retrieval import Prompt
from lce_core.store.identity import fingerprint
from lce_core.store.records import PROMPT_LIBRARIES

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from lce_core.data.held_out import HeldOutText

DEAR_SECONDS = 1.0
"""Minimum build time of prompts on disk, so that they do not fill the folder with small files."""
FORMAT = 4
"""Version of the cache files; raise it if their format or shared code for prompts changes."""

Build = Callable[[CellRequest], Sequence[Prompt]]


class PromptCache:
    """LRU cache of the prompts of cells, in memory and in a folder.

    `max_tokens` of 8 bytes each stay in memory, besides the latest cell's prompts.
    """

    def __init__(self, max_tokens: int, dear_seconds: float = DEAR_SECONDS) -> None:
        self._max_tokens, self._dear_seconds = max_tokens, dear_seconds
        self._kept: OrderedDict[str, tuple[Prompt, ...]] = OrderedDict()

    def get(
        self,
        key: Sequence[object],
        build: Callable[[], Sequence[Prompt]],
        folder: Path | None = None,
    ) -> tuple[Prompt, ...]:
        """Return the prompts cached under `key` (JSON values), or build and cache them.

        `folder` is shared with other processes; None caches in memory only.
        """
        name = fingerprint(list(key))
        if name not in self._kept:
            file = None if folder is None else folder / f"{name}.safetensors"
            self._kept[name] = self._read_or_built(file, build)
        self._kept.move_to_end(name)
        while len(self._kept) > 1 and self._tokens() > self._max_tokens:
            self._kept.popitem(last=False)
        return self._kept[name]

    def _read_or_built(
        self, file: Path | None, build: Callable[[], Sequence[Prompt]]
    ) -> tuple[Prompt, ...]:
        if file is None:
            return tuple(build())
        if (found := read_prompts(file)) is not None:
            return found
        clock = time.perf_counter()
        prompts = tuple(build())
        dear = time.perf_counter() - clock >= self._dear_seconds
        # A failed write only costs the time to build the prompts again.
        with contextlib.suppress(OSError):
            # If a file is here, it is damaged. Replace it, or every process would try to read it.
            if dear or file.is_file():
                write_prompts(file, prompts)
        return prompts

    def _tokens(self) -> int:
        return sum(len(prompt.ids) for prompts in self._kept.values() for prompt in prompts)


CACHE = PromptCache(max_tokens=64 << 20)


def cell_prompts(
    benchmark: Benchmark,
    request: CellRequest,
    build: Build,
    *,
    reads_held_out: bool = False,
) -> tuple[Prompt, ...]:
    """Return the prompts of a cell from the cache, or build and cache them.

    The cache key consists of benchmark (VERSION and parameters), task, length, seed, tokenizer, the
    benchmark's data files, held-out text if the prompts contain it, and library versions. If the
    tokenizer cannot be serialised, the prompts are built every time.
    """
    tokenizer = tokenizer_digest(request.tokenizer)
    if tokenizer is None:
        return tuple(build(request))
    key = {
        "format": FORMAT,
        "libraries": _releases(),
        "benchmark": benchmark.identity(),
        "task": request.task,
        "eval_length": request.eval_length,
        "seed": request.seed,
        "tokenizer": tokenizer,
        "data": benchmark.digest(request.task, request.data_folders),
        "held_out": _held_out_digest(request.held_out) if reads_held_out else None,
    }
    return CACHE.get([key], lambda: build(request), request.prompt_folder)


def tokenizer_digest(tokenizer: PreTrainedTokenizerBase) -> str | None:
    """Return a digest of everything that decides how a tokenizer encodes and decodes text.

    None if it cannot be serialised, because it has no backend of the package tokenizers.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return None
    options = ("clean_up_tokenization_spaces", "split_special_tokens", "chat_template")
    return fingerprint(
        [
            hashlib.sha256(backend.to_str().encode()).hexdigest(),
            {name: str(token) for name, token in tokenizer.special_tokens_map.items()},
            {name: getattr(tokenizer, name, None) for name in options},
        ]
    )


@functools.cache
def _releases() -> dict[str, str]:
    return {name: importlib.metadata.version(name) for name in PROMPT_LIBRARIES}


def _held_out_digest(held_out: HeldOutText) -> str:
    total = hashlib.sha256()
    for domain in held_out.domains:
        stream = held_out.stream(domain)
        total.update(f"{domain} {len(stream)}\n".encode())
        total.update(stream.tobytes())
    return total.hexdigest()
