"""Write a corpus as token shards, from which training rows and held-out text are cut.

Text is read in the source's order, tokenised by several threads, and written in the source's order,
so that the files do not depend on the number of threads. Whenever `SEGMENT_TOKENS` tokens are
ready, they are written to disk as a segment (`lce_core.data.segments`). A killed run continues
after the last complete segment. Only one segment and a few blocks of text are in memory. The output
folder has a folder for each segment and a manifest:

    00000/...  00001/...  manifest.json
"""

from __future__ import annotations

import copy
import os
import shutil
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lce_core.corpora import Block, Place, StreamedCorpus
from lce_core.data.manifest import write_manifest
from lce_core.data.segments import FACTS, Segment, TokenBlock, seal, sealed_segments, segment_name
from lce_core.data.tokenised import (
    checked,
    domain_indices,
    encoded,
    hash_key,
    separator_of,
    token_dtype,
)
from lce_core.errors import DataError
from lce_core.progress import Report

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

SEGMENT_TOKENS = 1 << 25
"""A segment is written when it has at least this many tokens: 64 MiB of uint16, about a minute of
work for one core. An interrupted run repeats the work of at most one segment."""


def write_shards(
    corpus: StreamedCorpus,
    tokenizer: PreTrainedTokenizerBase,
    *,
    folders: Mapping[str, Path],
    progress: Path,
    out: Path,
    workers: int,
    report: Report,
) -> dict[str, Any]:
    """Tokenise both splits of a corpus into `out`, in `workers` threads.

    `progress` is the folder of the complete segments, from which an interrupted run continues.
    """
    dtype = token_dtype(len(tokenizer))
    progress.mkdir(parents=True, exist_ok=True)
    sealed = sealed_segments(progress, dtype)
    place = Place(**sealed[-1]["end"]) if sealed else Place()
    total = resumed = sum(segment["tokens"] for segment in sealed)
    segment, began = Segment(), time.monotonic()
    for block in _tokenised(corpus, tokenizer, corpus.blocks(folders, place), workers):
        segment.add(block)
        place, total = block.end, total + block.ids.size
        if segment.tokens >= SEGMENT_TOKENS:
            sealed.append(seal(segment, corpus.domains(), progress, len(sealed)))
            segment = Segment()
        seconds = max(time.monotonic() - began, 1e-9)
        report(
            {
                "stage": "tokenising",
                "documents": place.documents,
                "tokens": total,
                "tokens_per_second": round((total - resumed) / seconds),
            }
        )
    if segment.tokens:
        sealed.append(seal(segment, corpus.domains(), progress, len(sealed)))
    if not total:
        raise DataError(
            corpus.plugin_name,
            "no tokens in any document",
            "text to tokenise",
            "add text, or set `files` to patterns that match files with text",
        )
    return _publish(sealed, corpus, tokenizer, progress, out)


def _tokenised(
    corpus: StreamedCorpus,
    tokenizer: PreTrainedTokenizerBase,
    blocks: Iterator[Block],
    workers: int,
) -> Iterator[TokenBlock]:
    """Tokenise blocks in `workers` threads; yield them in input order.

    Threads suffice, because the Rust tokenizers release the GIL while they encode. Each thread has
    its own tokenizer, because encoding changes options of the tokenizer.
    """
    own = threading.local()

    def begin() -> None:
        own.tokenizer = copy.deepcopy(tokenizer)

    def encode(block: Block) -> TokenBlock:
        return _encode(corpus, own.tokenizer, block)

    waiting: deque[Future[TokenBlock]] = deque()
    with ThreadPoolExecutor(workers, initializer=begin) as pool:
        for block in blocks:
            waiting.append(pool.submit(encode, block))
            if len(waiting) > workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _encode(corpus: StreamedCorpus, tokenizer: PreTrainedTokenizerBase, block: Block) -> TokenBlock:
    found = encoded(tokenizer, block.documents)
    names = [document.name for document in block.documents]
    return TokenBlock(
        checked(found, block.documents, len(tokenizer)).astype(token_dtype(len(tokenizer))),
        np.array([len(ids) for ids in found], dtype=np.int64),
        domain_indices(block.documents, corpus.domains()),
        np.array([corpus.split(name) == "held_out" for name in names], dtype=np.bool_),
        names,
        np.array([hash_key(document.text) for document in block.documents], dtype=np.uint64),
        block.end,
    )


def _publish(
    sealed: list[dict[str, Any]],
    corpus: StreamedCorpus,
    tokenizer: PreTrainedTokenizerBase,
    progress: Path,
    out: Path,
) -> dict[str, Any]:
    """Hard-link the files of all complete segments into `out`; write and return the manifest."""
    digests: dict[str, str] = {}
    for number, facts in enumerate(sealed):
        (out / segment_name(number)).mkdir()
        for name in (*facts["sha256"], FACTS):
            _link(progress / segment_name(number) / name, out / segment_name(number) / name)
        digests |= {f"{segment_name(number)}/{name}": sha for name, sha in facts["sha256"].items()}
    dtype = token_dtype(len(tokenizer))
    sizes = [
        sum(facts["bytes"].get(str(domain), 0) for facts in sealed) // dtype.itemsize
        for domain in range(len(corpus.domains()))
    ]
    manifest = {
        "dtype": dtype.name,
        "vocabulary": len(tokenizer),
        "separator": separator_of(tokenizer),
        "documents": sum(facts["documents"] for facts in sealed),
        "tokens": sum(facts["tokens"] for facts in sealed),
        "domains": [
            {"domain": name, "tokens": tokens}
            for name, tokens in zip(corpus.domains(), sizes, strict=True)
        ],
        "segments": [{k: facts[k] for k in ("documents", "tokens", "bytes")} for facts in sealed],
        "sha256": digests,
    }
    write_manifest(out, manifest)
    return manifest


def _link(old: Path, new: Path) -> None:
    """Hard-link a file into the output folder, or copy it on file systems without hard links."""
    # The file stays at `old` too: a run that is killed before the step ends continues from it.
    try:
        os.link(old, new)
    except OSError:
        shutil.copyfile(old, new)
