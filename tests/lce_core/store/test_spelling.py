"""The one spelling of a value and its digest, and digests of files longer than a block.

The digest of the spelling is that of `sha256sum`; every id in every store depends on it.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from lce_core.store.identity import canonical_json, fingerprint, sha256_file

VALUE = {"c": {}, "b": [1, 2.5, None, True], "a": "\u00e9"}
SPELLED = r'{"a":"\u00e9","b":[1,2.5,null,true],"c":{}}'
DIGEST = "0521416f552012ea03ca1f1a3fab3709d2d4d854521a3db993785caee0e1fad3"


def test_a_value_has_one_spelling_and_the_digest_of_that() -> None:
    assert canonical_json(VALUE) == SPELLED
    assert fingerprint(VALUE) == DIGEST


@pytest.mark.parametrize("size", [0, 1, 1 << 20, (1 << 20) + 1, (3 << 20) - 1])
def test_a_file_is_digested_whole(size: int, tmp_path: Path) -> None:
    content = bytes(range(251)) * (size // 251 + 1)
    (tmp_path / "file").write_bytes(content[:size])
    assert sha256_file(tmp_path / "file") == hashlib.sha256(content[:size]).hexdigest()
