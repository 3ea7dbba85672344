"""Cache of built prompts, so that all extension methods of a study reuse the prompts of a cell.

A lookup tries the memory of this process first, then the folder `prompts` of the store, which all
workers and later runs share. A file (`lce_core.store.parts`) has the prompts of one cell in three
arrays: `ids` (token ids of all prompts, uint32), `lengths` (tokens of each prompt) and `fields`
(all other fields of the prompts, as JSON bytes).
"""

import contextlib
import functools
import hashlib
import importlib.metadata
import json
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from lce_core.benchmarks._base import Benchmark, CellRequest
from lce_core.benchmarks._prompted.retrieval import Prompt
from lce_core.store.identity import fingerprint
from lce_core.store.odd_files import read_file, write_file
from lce_core.store.parts import from_bytes, to_bytes
from lce_core.store.records import PROMPT_LIBRARIES

DEAR_SECONDS = 1.0
"""Minimum build time of prompts on disk, so that they do not fill the folder with small files."""
FORMAT = 6
"""Version of the cache files; raise it if their format or shared code for prompts changes."""


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
        """Return the prompts cached under `key` (JSON values), or build and cache them."""
        name = fingerprint(list(key))
        if name not in self._kept:
            file = None if folder is None else folder / f"{name}.safetensors"
            self._kept[name] = self._read_or_built(file, build)
        self._kept.move_to_end(name)
        sizes = {name: sum(len(one.ids) for one in kept) for name, kept in self._kept.items()}
        while len(self._kept) > 1 and sum(sizes.values()) > self._max_tokens:
            sizes.pop(self._kept.popitem(last=False)[0])
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


CACHE = PromptCache(max_tokens=64 << 20)


def cell_prompts(
    benchmark: Benchmark,
    request: CellRequest,
    build: Callable[[CellRequest], Sequence[Prompt]],
    *,
    reads_held_out: bool = False,
) -> tuple[Prompt, ...]:
    """Return the prompts of a cell from the cache, or build and cache them.

    If the tokenizer cannot be serialised, the prompts are built every time.
    """
    tokenizer = _tokenizer_digest(request)
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
        "held_out": _held_out_digest(request) if reads_held_out else None,
    }
    return CACHE.get([key], lambda: build(request), request.prompt_folder)


def _tokenizer_digest(request: CellRequest) -> str | None:
    """Return a digest of all that decides how the tokenizer encodes and decodes text.

    None if it has no backend of the package tokenizers.
    """
    tokenizer, backend = request.tokenizer, getattr(request.tokenizer, "backend_tokenizer", None)
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


def _held_out_digest(request: CellRequest) -> str:
    total = hashlib.sha256()
    for domain in request.held_out.domains:
        stream = request.held_out.stream(domain)
        total.update(f"{domain} {len(stream)}\n".encode())
        total.update(stream.tobytes())
    return total.hexdigest()


def write_prompts(file: Path, prompts: Sequence[Prompt]) -> None:
    """Write prompts to `file` atomically."""
    others = [field.name for field in fields(Prompt) if field.name != "ids"]
    columns = {name: [getattr(prompt, name) for prompt in prompts] for name in others}
    ids = np.concatenate([np.zeros(0, np.int64), *(prompt.ids for prompt in prompts)])
    content = to_bytes(
        {
            "ids": ids.astype(np.uint32),
            "lengths": np.array([len(prompt.ids) for prompt in prompts], dtype=np.int64),
            "fields": np.frombuffer(json.dumps(columns).encode("ascii"), dtype=np.uint8),
        }
    )
    file.parent.mkdir(parents=True, exist_ok=True)
    write_file(file, content)


def read_prompts(file: Path) -> tuple[Prompt, ...] | None:
    """Return the prompts in a file of `write_prompts`; None if it is missing or damaged."""
    try:
        arrays = from_bytes(read_file(file))
        if arrays is None:
            return None
        columns = json.loads(arrays["fields"].tobytes())
        ids, lengths = arrays["ids"].astype(np.int64), arrays["lengths"]
        ends = np.cumsum(lengths)
        rows = [ids[end - length : end] for end, length in zip(ends, lengths, strict=True)]
        return tuple(
            Prompt(ids=row, **dict(zip(columns, map(_as_field, values), strict=True)))
            for row, *values in zip(rows, *columns.values(), strict=True)
        )
    except (OSError, KeyError, TypeError, ValueError):
        return None


def _as_field(value: Any) -> Any:
    return tuple(map(_as_field, value)) if isinstance(value, list) else value
