"""Cache of prompts in words, so that a worker that evaluates many methods builds them once.

Prompts are searched in this process, then in the store's folder `prompts`, and built if missing.
The files serve other workers and later runs. Reading is tens of times faster than tokenising, but
prompts are only written if building them took at least `DEAR_SECONDS`; cheaper ones would fill the
folder with small files. Results do not depend on the cache.
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
from typing import TYPE_CHECKING, TypeVar, cast

from lce_core.benchmarks._base import Benchmark, CellRequest
from lce_core.benchmarks._prompted.files import read_prompts, write_prompts
from lce_core.benchmarks._prompted.retrieval import Prompt
from lce_core.store.identity import fingerprint

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from lce_core.data.held_out import HeldOutText

DEAR_SECONDS = 1.0
FORMAT = 1
"""Increase this number when the file format or the shared code that builds prompts changes."""
_LIBRARIES = ("numpy", "tokenizers", "transformers", "wonderwords")
"""Libraries whose version can change random draws, words or tokens; part of the cache key."""

P = TypeVar("P", bound=Prompt)


class PromptCache:
    """In-memory LRU cache of the prompts of cells, with a folder as a second level.

    Args:
      max_tokens: prompt tokens kept in memory, 8 bytes each; the latest cell is always kept.
      dear_seconds: build time from which prompts are written to disk.
    """

    def __init__(self, max_tokens: int, dear_seconds: float = DEAR_SECONDS) -> None:
        self._max_tokens, self._dear_seconds = max_tokens, dear_seconds
        self._kept: OrderedDict[str, tuple[Prompt, ...]] = OrderedDict()

    def get(
        self,
        key: Sequence[object],
        build: Callable[[], Sequence[P]],
        kind: type[P],
        folder: Path | None = None,
    ) -> tuple[P, ...]:
        """Return the prompts under `key`; build them if they are missing.

        Args:
          key: everything that the prompts depend on, as accepted by `fingerprint`.
          build: builds the prompts; if it raises, nothing is stored.
          kind: class of the prompts.
          folder: folder that stores prompts for other processes; None stores nothing.
        """
        name = fingerprint(list(key))
        if name not in self._kept:
            file = None if folder is None else folder / f"{name}.safetensors"
            self._kept[name] = self._read_or_built(file, build, kind)
        self._kept.move_to_end(name)
        while len(self._kept) > 1 and self._tokens() > self._max_tokens:
            self._kept.popitem(last=False)
        return cast(tuple[P, ...], self._kept[name])

    def _read_or_built(
        self, file: Path | None, build: Callable[[], Sequence[P]], kind: type[P]
    ) -> tuple[P, ...]:
        if file is None:
            return tuple(build())
        if (found := read_prompts(file, kind)) is not None:
            return found
        clock = time.perf_counter()
        prompts = tuple(build())
        dear = time.perf_counter() - clock >= self._dear_seconds
        # The folder is only a cache; failing to write costs time, nothing else.
        with contextlib.suppress(OSError):
            # Replace a damaged file even if building was fast, or every process would try to read
            # it.
            if dear or file.is_file():
                write_prompts(file, prompts, kind)
        return prompts

    def _tokens(self) -> int:
        return sum(len(prompt.ids) for prompts in self._kept.values() for prompt in prompts)


CACHE = PromptCache(max_tokens=64 << 20)


def cell_prompts(
    benchmark: Benchmark,
    request: CellRequest,
    build: Callable[[], Sequence[P]],
    kind: type[P],
    *,
    reads_held_out: bool = False,
) -> tuple[P, ...]:
    """Return the prompts of a cell from memory or disk; build them if neither has them.

    The key consists of benchmark (VERSION and parameters), task, length, seed, tokenizer, the
    benchmark's data, held-out text if it is read, and library releases. If the tokenizer cannot be
    serialised, prompts are built every time.

    Args:
      benchmark: the benchmark that the prompts belong to.
      request: the cell.
      build: builds the prompts; they must depend on the key alone.
      kind: class of the prompts.
      reads_held_out: True if prompts are cut from the held-out text.

    Raises:
      UnavailableError: if the benchmark's data is not on this machine.
      DataError: if the data cannot be read. Errors of `build` also pass through.
    """
    tokenizer = tokenizer_digest(request.tokenizer)
    if tokenizer is None:
        return tuple(build())
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
    return CACHE.get([key], build, kind, request.prompt_folder)


def tokenizer_digest(tokenizer: PreTrainedTokenizerBase) -> str | None:
    """Return the sha256 of everything about a tokenizer that changes texts or ids.

    This covers vocabulary, merges, rules, special tokens and options. None means that the tokenizer
    cannot be serialised.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return None
    options = ("clean_up_tokenization_spaces", "split_special_tokens")
    return fingerprint(
        [
            hashlib.sha256(backend.to_str().encode()).hexdigest(),
            {name: str(token) for name, token in tokenizer.special_tokens_map.items()},
            {name: getattr(tokenizer, name, None) for name in options},
        ]
    )


@functools.cache
def _releases() -> dict[str, str]:
    return {name: importlib.metadata.version(name) for name in _LIBRARIES}


def _held_out_digest(held_out: HeldOutText) -> str:
    total = hashlib.sha256()
    for domain in held_out.domains:
        stream = held_out.stream(domain)
        total.update(f"{domain} {len(stream)}\n".encode())
        total.update(stream.tobytes())
    return total.hexdigest()
