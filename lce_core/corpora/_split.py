"""Which documents are held out: decided by name alone, so that it never depends on the others."""

from __future__ import annotations

import hashlib

from lce_core.corpora import Split


def split_of(name: str, held_out_percent: float) -> Split:
    """The split of the document or file `name`.

    The first 8 bytes of sha256(name), read big-endian as a fraction of 2^64, lie below the share
    for held-out text. Adding or removing files moves no other file to the other side.
    """
    head = hashlib.sha256(name.encode("utf-8")).digest()[:8]
    return "held_out" if int.from_bytes(head, "big") * 100 < held_out_percent * 2**64 else "train"
