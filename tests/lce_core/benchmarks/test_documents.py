import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lce_core.benchmarks import CellData
from lce_core.benchmarks._text.documents import Documents, read_documents
from lce_core.data.sequences import Sequences
from lce_core.errors import DataError, UnavailableError
from tests.support.cells import TOY
from tests.support.cells import benchmark as _benchmark
from tests.support.cells import request as _request


def _read(name: str, folder: Path, **options: Any) -> Documents:
    request = _request(_benchmark("perplexity"), 128, task=name, data_folders={name: folder})
    return read_documents(request, **options)


def _texts(documents: Documents) -> list[str]:
    return [bytes(ids.astype(np.uint8)).decode() for ids in documents.tokens]


def test_a_gutenberg_book_loses_header_licence_and_carriage_returns(tmp_path):
    header = "Title: A\r\nCharacter set encoding: ISO-8859-1\r\n"
    start = "*** START OF THIS PROJECT GUTENBERG EBOOK A\r\nLONG TITLE ***\r\n"
    end = "***END OF THE PROJECT GUTENBERG EBOOK A***\r\nlicence\r\n"
    book = f"{header}{start}\r\nCaf\xe9.\r\nTwo * stars.\r\n\r\n{end}"
    (tmp_path / "a.txt").write_bytes(book.encode("latin-1"))
    (tmp_path / "b.txt").write_text("Bare text.\n", encoding="utf-8")
    assert _texts(_read("pg19", tmp_path)) == ["Caf\xe9.\nTwo * stars.\n", "Bare text.\n"]


def test_documents_come_in_the_order_of_files_and_rows(tmp_path):
    rows = [{"input": "one", "output": "x"}, {"input": "two"}]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (tmp_path / "b.jsonl").write_text(lines, encoding="utf-8")
    pq.write_table(pa.table({"text": ["three"]}), tmp_path / "c.parquet")
    (tmp_path / "a.txt").write_text("zero", encoding="utf-8")
    documents = _read("govreport", tmp_path)
    assert documents.names == ("a.txt", "b.jsonl:1", "b.jsonl:2", "c.parquet:1")
    assert _texts(documents) == ["zero", "one", "two", "three"]
    assert _texts(_read("govreport", tmp_path, at_least=4, at_most=1)) == ["zero"]
    assert _texts(_read("govreport", tmp_path, at_least=5)) == ["three"]
    assert _texts(_read("govreport", tmp_path, max_tokens=6)) == ["zero", "on"]


def test_nothing_is_read_beyond_the_documents_asked_for(tmp_path):
    (tmp_path / "a.txt").write_text("fine", encoding="utf-8")
    (tmp_path / "b.jsonl").write_text("{", encoding="utf-8")
    assert _texts(_read("pg19", tmp_path, at_most=1)) == ["fine\n"]
    for _ in range(2):  # what failed once does not pass as the end of the data
        with pytest.raises(DataError, match=r"b\.jsonl"):
            _read("pg19", tmp_path)


def test_files_that_changed_are_read_again_and_absent_or_short_ones_are_named(tmp_path):
    for text in ("old", "newer"):
        (tmp_path / "a.txt").write_text(text, encoding="utf-8")
        assert _texts(_read("pg19", tmp_path)) == [f"{text}\n"]
    with pytest.raises(UnavailableError, match="got 6 tokens in the longest document"):
        _read("pg19", tmp_path, at_least=7)
    benchmark = _benchmark("perplexity", data_sets=["pg19"])
    assert benchmark.digest("code", {}) is None
    absent = _request(benchmark, 300, task="pg19")
    for ask in (lambda: benchmark.digest("pg19", {}), lambda: benchmark.evaluate(absent)):
        with pytest.raises(UnavailableError, match=r"'pg19': got no folder.*--data-folder"):
            ask()


def test_joined_documents_each_begin_with_the_token_that_begins_texts():
    tokens = tuple(np.array(ids, dtype=np.uint32) for ids in ([5, 6], [7]))
    documents = Documents(("a", "b"), tokens, 1)
    assert documents.joined().tolist() == [1, 5, 6, 1, 7]
    assert documents.names_at(np.arange(5)) == ["a", "a", "a", "b", "b"]
    assert replace(documents, bos=None).joined().tolist() == [5, 6, 7]
    assert replace(documents, bos=None).names_at(np.arange(3)) == ["a", "a", "b"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"caf\xe9", r"a\.txt.*readable utf-8 text"),
        ("a.jsonl", b'{"text": "x"}\n{"ids": 1}\n', r"a\.jsonl: row 2: got no text"),
        ("a.jsonl", b'{"input_ids": [1, 2]}\n', "lce tokenise"),
    ],
)
def test_files_that_are_no_documents_are_named(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    benchmark = _benchmark("perplexity", data_sets=["pg19"])
    request = _request(benchmark, 300, task="pg19", data_folders={"pg19": tmp_path})
    with pytest.raises(DataError, match=message):
        benchmark.evaluate(request)


@pytest.fixture
def folders(tmp_path) -> dict[str, Path]:
    rng = np.random.default_rng(3)
    for name, count in (("pg19", 12), ("govreport", 3)):
        (tmp_path / name).mkdir()
        for number in range(count):
            size = 400 + 200 * (number % 3)
            text = "".join(chr(97 + letter) for letter in rng.integers(26, size=size))
            (tmp_path / name / f"{number:02}.txt").write_text(text, encoding="utf-8")
    return {name: tmp_path / name for name in ("pg19", "govreport")}


@pytest.mark.parametrize(
    ("name", "parameters", "least_and_most"),
    [
        ("perplexity", {"stride": 100, "last": 20}, (3, 12)),
        ("perplexity_documents", {"stride": 100, "min_document_tokens": 500}, (3, 12)),
        ("perplexity_documents", {"profile": "faithful", "min_document_tokens": 500}, (3, 10)),
        ("nll_by_position", {"profile": "faithful"}, (3, 12)),
    ],
)
def test_tokens_over_a_data_set_are_predicted(name, parameters, least_and_most, folders):
    benchmark = _benchmark(name, data_sets=["pg19"], **parameters)
    request = _request(benchmark, 150, task="pg19", data_folders=folders)
    result = benchmark.evaluate(request)
    predicted = benchmark.data_sequences(CellData(TOY, "pg19", 150, folders))
    assert predicted is not None
    assert result.num_tokens == pytest.approx(predicted.num_tokens, rel=0.15)
    assert benchmark.data_sequences(CellData(TOY, "code", 150, folders)) is None
    documents = {sample.reference for sample in result.samples}
    assert None not in documents
    assert least_and_most[0] <= len(documents) <= least_and_most[1]


def test_faithful_reports_are_yarns_first_fifty(folders):
    folder = folders["govreport"]
    for number in range(60):
        (folder / f"long-{number}.txt").write_text("x" * 16384, encoding="utf-8")
    benchmark = _benchmark("perplexity_documents", profile="faithful", data_sets=["govreport"])
    # Documents of 400 to 800 tokens are passed over; each of the others is one window.
    predicted = benchmark.data_sequences(CellData(TOY, "govreport", 32768, folders))
    assert predicted == Sequences({16384: 50})


def test_published_books_are_read_without_their_licence(test_data):
    books = _read("pg19", test_data / "books")
    assert len(books.names) == 6
    for ids in books.tokens:
        text = bytes(ids.astype(np.uint8)).decode()
        assert "Project Gutenberg" not in text[:300]
        assert "GUTENBERG EBOOK" not in text
        assert "\r" not in text
