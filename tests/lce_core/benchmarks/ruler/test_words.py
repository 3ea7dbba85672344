"""The words of RULER's prompts are in no id, so another word list must not be drawn from."""

import pytest

from lce_core.benchmarks.ruler import _vocabulary
from lce_core.errors import UnavailableError


def test_words_of_another_release_of_wonderwords_make_the_cell_unavailable(tmp_path, monkeypatch):
    assets = tmp_path / "assets"
    assets.mkdir()
    words = [*_vocabulary.word_list("noun")[:-1], "zymurgist"]
    (assets / "nounlist.txt").write_text("\n".join(words), encoding="utf-8")
    monkeypatch.setattr(_vocabulary, "files", lambda package: tmp_path)
    with pytest.raises(UnavailableError, match=r"6,782 words .* `pip install wonderwords==3.0.1"):
        _vocabulary.word_list.__wrapped__("noun")
