"""The rule that decides from a document's name whether it is held out from training."""

from __future__ import annotations

import hashlib

from lce_core.corpora import Split


def split_of(name: str, held_out_percent: float) -> Split:
    """Return the split of the document or file with this name.

    A document is held out if the first 8 bytes of sha256(name), as a big-endian integer divided by
    2^64, are below held_out_percent / 100. The split of a document does not depend on other
    documents.
    """
    head = hashlib.sha256(name.encode("utf-8")).digest()[:8]
    return "held_out" if int.from_bytes(head, "big") * 100 < held_out_percent * 2**64 else "train"
