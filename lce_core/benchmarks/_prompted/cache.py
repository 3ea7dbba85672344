"""Prompts of cells in text form, built once: a worker asks many methods the same ones.

They are looked up in this process, then in the store's folder `prompts`, then built. The disk is
for other workers and later runs. Whatever the benchmark, reading is tens of times faster than
tokenising, so prompts are written where building them took `DEAR_SECONDS`; what took less would
only fill the folder with small files. Results do not depend on any of this.
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
"""Raised when the files change, or what all benchmarks build their prompts with."""
_LIBRARIES = ("numpy", "tokenizers", "transformers", "wonderwords")
"""Whose releases decide draws, words and tokens."""

P = TypeVar("P", bound=Prompt)


class PromptCache:
    """The prompts of the cells that were asked last.

    Args:
      max_tokens: tokens of prompts that are kept in memory, 8 bytes each; one cell at least.
      dear_seconds: time of building from which on prompts are written to disk.
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
        """The prompts under `key`, built if they are not there.

        Args:
          key: all that the prompts follow from, as `fingerprint` takes it.
          build: makes the prompts; nothing is kept if it raises.
          kind: their class.
          folder: where they are kept for other processes; None: nowhere.
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
        with contextlib.suppress(OSError):  # a cache: losing it costs time only
            if dear or file.is_file():  # a damaged one would be read in vain again
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
    """The prompts of a cell, from a cache or from `build`.

    The key is benchmark (VERSION and parameters), task, length, seed, tokenizer, the benchmark's
    data, held-out text where it is read, and the releases of the libraries at work. What a
    tokenizer makes that cannot be written down is built each time.

    Args:
      benchmark: whose prompts.
      request: the cell.
      build: makes the prompts; they follow from the key alone.
      kind: their class.
      reads_held_out: whether they are cut from the held-out text.

    Raises:
      UnavailableError: the benchmark's data are not on this machine.
      DataError: they cannot be read.
      Whatever `build` raises.
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
    """sha256 of vocabulary, merges, rules, special tokens and the options that change texts or ids.

    None for a tokenizer that cannot be written down.
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
