"""Choose held-out documents by name alone, independently of all other documents."""

from __future__ import annotations

import hashlib

from lce_core.corpora import Split


def split_of(name: str, held_out_percent: float) -> Split:
    """Return the split of the document or file `name`.

    A document is held out if the first 8 bytes of sha256(name), read big-endian as a fraction of
    2^64, are below the held-out share. Adding or removing files does not change the split of other
    files.
    """
    head = hashlib.sha256(name.encode("utf-8")).digest()[:8]
    return "held_out" if int.from_bytes(head, "big") * 100 < held_out_percent * 2**64 else "train"
