"""Every registered corpus keeps the contract on real files; folders with bad input are refused."""

import gzip
import hashlib
import json
import os
import stat
import subprocess
import sys
import sysconfig
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lce_core.corpora import CORPORA, Corpus, Split, _rows
from lce_core.corpora._files import split_of
from lce_core.corpora.local_text import docstrings
from lce_core.errors import DataError, SpecError, UnavailableError
from tests.support.data.slimpajama import write

LOCAL = CORPORA.parse({"name": "local_text"}, "test")
PARAMETERS: dict[str, dict[str, Any]] = {
    "jsonl_folder": {"domain_names": ["text", "web", "books"]},
    "text_folder": {"domain_names": ["text", "web", "books"]},
    "streamed": {"held_out_percent": 5.0},
}
"""What the folder of the tests asks of a corpus."""
SPLITS: tuple[Split, ...] = ("train", "held_out")


def folder_corpus(**parameters: Any) -> Corpus:
    return CORPORA.parse({"name": "jsonl_folder", **parameters}, "test")


@pytest.fixture
def folder(tmp_path) -> Path:
    root = tmp_path / "text"
    (root / "books").mkdir(parents=True)
    lines = [{"text": f"web page {i} \u00e9", "domain": "web"} for i in range(60)]
    (root / "b.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    more = [{"text": f"plain {i}"} for i in range(60)]
    (root / "a.jsonl").write_text("\n\n".join(json.dumps(line) for line in more))
    (root / "books" / "one.txt").write_text("A book.\nIts text.")
    (root / "notes.md").write_text("not read")
    return root


def documents(corpus: Corpus, folders: dict[str, Path]) -> dict[str, tuple[str, str, str]]:
    """Name to (split, domain, text) over both splits."""
    found: dict[str, tuple[str, str, str]] = {}
    for split in SPLITS:
        for document in corpus.documents(split, folders):
            assert document.name not in found
            found[document.name] = (split, document.domain, document.text)
    return found


# Other tests show the same of local_text, which takes long to read.
@pytest.mark.parametrize("name", sorted({*CORPORA.names()} - {"local_text"}))
def test_a_corpus_keeps_the_contract(name, folder):
    corpus = CORPORA.parse({"name": name, **PARAMETERS.get(name, {})}, "test")
    folders = {"text": folder}
    assert CORPORA.from_identity(corpus.identity()) == corpus
    found = documents(corpus, folders)
    assert found == documents(corpus, folders)
    assert {domain for _, domain, _ in found.values()} == set(corpus.domains())
    assert {split for split, _, _ in found.values()} == set(SPLITS)
    assert all(text for _, _, text in found.values())
    assert corpus.digest(folders) == corpus.digest(folders)


@pytest.fixture(scope="module")
def local() -> dict[str, tuple[str, str, str]]:
    return documents(LOCAL, {})


@pytest.mark.slow
def test_local_text_is_equal_in_another_process_with_another_hash_seed(local):
    code = (
        "import hashlib\nfrom lce_core.corpora import CORPORA\n"
        "c = CORPORA.parse({'name': 'local_text'}, 'x')\nh = hashlib.sha256()\n"
        "for d in c.documents('held_out', {}): h.update(repr((d.name, d.text)).encode())\n"
        "print(c.digest({}), h.hexdigest())"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONHASHSEED": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    own = hashlib.sha256()
    for name, (split, _, text) in local.items():
        if split == "held_out":
            own.update(repr((name, text)).encode())
    assert answer.stdout.split() == [LOCAL.digest({}), own.hexdigest()]


def test_local_text_has_enough_held_out_text_in_every_domain(local):
    sizes = dict.fromkeys(LOCAL.domains(), 0)
    for split, domain, text in local.values():
        sizes[domain] += len(text.encode()) * (split == "held_out")
    assert min(sizes.values()) >= 64 * 1024, sizes
    assert CORPORA.from_identity(LOCAL.identity()) == LOCAL
    assert {split for split, _, _ in local.values()} == set(SPLITS)
    assert all(text for _, _, text in local.values())


def test_local_text_is_the_standard_library_with_docstrings_in_their_files_split(local):
    root = Path(sysconfig.get_path("stdlib"))
    names = [name for name, (_, domain, _) in local.items() if domain == "code"]
    assert not [name for name in names if not (root / name).is_file()]
    parts = {part for name in names for part in name.split("/")}
    assert not parts & {"site-packages", "test", "idlelib", "__pycache__"}
    assert "json" in parts
    docs = [name for name in local if name.endswith(":docs")]
    assert docs
    for name in docs:
        assert local[name][0] == local[name.removesuffix(":docs")][0]


def test_docstrings_are_laid_out_under_their_dotted_names():
    source = (
        '"""A module."""\nclass C:\n    def f(self, x=1):\n        """Does f.\n\n        More.\n'
        '        """\n    async def g(self):\n        "Does g."\n'
    )
    expected = (
        "a.b\n---\nA module.\n\na.b.C.f(self, x=1)\n------------------\nDoes f.\n\nMore.\n\n"
        "a.b.C.g(self)\n-------------\nDoes g."
    )
    assert docstrings(source, "a/b.py") == expected
    assert docstrings("def broken(:", "a.py") == ""


def test_a_text_folder_also_reads_markdown_unchanged(folder):
    parameters = {"domain_names": ["text", "web", "books"]}
    (folder / "books" / "two.md").write_text("---\ntitle: x\n---\n# Two\n")
    of_lines, corpus = (
        CORPORA.parse({"name": name, **parameters}, "test")
        for name in ("jsonl_folder", "text_folder")
    )
    found = documents(corpus, {"text": folder})
    markdown = {name: found.pop(name)[1:] for name in ("notes.md", "books/two.md")}
    assert markdown == {
        "notes.md": ("text", "not read"),
        "books/two.md": ("books", "---\ntitle: x\n---\n# Two\n"),
    }
    assert found == documents(of_lines, {"text": folder})
    before = [one.digest({"text": folder}) for one in (corpus, of_lines)]
    (folder / "notes.md").write_text("changed")
    after = [one.digest({"text": folder}) for one in (corpus, of_lines)]
    assert [one == other for one, other in zip(before, after, strict=True)] == [False, True]


def test_a_folder_yields_lines_and_files_with_their_domains(folder):
    corpus = folder_corpus(domain_names=["text", "web", "books"])
    found = documents(corpus, {"text": folder})
    assert len(found) == 121
    assert found["a.jsonl:1"][1:] == ("text", "plain 0")
    assert found["a.jsonl:3"][1:] == ("text", "plain 1")  # blank lines count as lines
    assert found["b.jsonl:60"][1:] == ("web", "web page 59 \u00e9")
    assert found["books/one.txt"][1:] == ("books", "A book.\nIts text.")


def test_domain_names_are_distinct():
    with pytest.raises(SpecError, match="distinct"):
        folder_corpus(domain_names=["a", "a"])


def test_the_digest_follows_names_and_contents_and_a_new_file_moves_no_document(folder):
    corpus, folders = folder_corpus(domain_names=["text", "web", "books"]), {"text": folder}
    before, digests = documents(corpus, folders), [corpus.digest(folders)]
    (folder / "0.txt").write_text("new")
    after = documents(corpus, folders)
    assert after.pop("0.txt")
    assert after == before
    digests.append(corpus.digest(folders))
    (folder / "0.txt").write_text("now")
    digests.append(corpus.digest(folders))
    (folder / "0.txt").rename(folder / "1.txt")
    digests.append(corpus.digest(folders))
    assert len(set(digests)) == 4


@given(st.lists(st.text(max_size=8), min_size=1, max_size=20, unique=True), st.floats(0.1, 99))
def test_a_larger_share_keeps_what_was_held_out(names, percent):
    for name in names:
        if split_of(name, percent / 2) == "held_out":
            assert split_of(name, percent) == "held_out"


def test_the_held_out_share_is_what_is_asked_for():
    held_out = sum(split_of(f"file-{i}", 10.0) == "held_out" for i in range(10_000))
    assert abs(held_out - 1000) < 4 * 30  # four standard deviations of a binomial


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b'{"text": "a"}\n{"text": \n', r"x\.jsonl:2: got a line that is not JSON"),
        (b"[" * 100_000, r"x\.jsonl:1: got a line that is not JSON"),
        (b'{"text": "a"}\n{"body": "b"}\n', r"x\.jsonl:2: got no text under 'text'"),
        (b'["text"]\n', r"x\.jsonl:1: got a JSON value of type list"),
        (b'{"text": "a", "domain": []}\n', r"x\.jsonl:1: got domain \[\]"),
        (b'{"text": "\\ud800"}\n', r"x\.jsonl:1: got half a surrogate pair"),
        (b'{"text": "a"}\n{"text": "\xff"}\n', r"x\.jsonl: got byte 24, which is not UTF-8"),
    ],
)
def test_a_bad_line_is_named(content, complaint, tmp_path):
    (tmp_path / "x.jsonl").write_bytes(content)
    with pytest.raises(DataError, match=complaint):
        documents(folder_corpus(), {"text": tmp_path})


ASKS = (folder_corpus().digest, lambda folders: documents(folder_corpus(), folders))


@pytest.mark.parametrize("ask", ASKS)
def test_a_folder_that_is_missing_or_empty_or_not_utf8_is_refused(ask, tmp_path):
    for folders in ({}, {"text": tmp_path / "absent"}):
        with pytest.raises(UnavailableError, match="--data-folder text=FOLDER"):
            ask(folders)
    (tmp_path / "notes.md").write_text("not read")
    with pytest.raises(DataError, match=r"no \.jsonl or \.txt file"):
        ask({"text": tmp_path})
    (tmp_path / "x.txt").write_bytes(b"caf\xe9")
    with pytest.raises(DataError, match=r"x\.txt: got byte 3, which is not UTF-8"):
        documents(folder_corpus(), {"text": tmp_path})


@pytest.mark.parametrize(
    ("source", "name"),
    [("jsonl_folder", "x.jsonl"), ("text_folder", "x.txt"), ("streamed", "x.jsonl")],
)
@pytest.mark.parametrize("kind", ["loop", "fifo", "socket", "endless"])
def test_a_path_without_a_regular_file_is_named_and_nobody_waits(source, name, kind, tmp_path):
    file = tmp_path / name
    if kind == "loop":  # cannot be opened by anyone, root included
        file.symlink_to(file)
    elif kind == "endless":
        file.symlink_to("/dev/zero")
    elif kind == "fifo":
        os.mkfifo(file)
    else:
        os.mknod(file, stat.S_IFSOCK | 0o600)
    corpus = CORPORA.parse({"name": source}, "test")
    for ask in (corpus.digest, lambda folders: documents(corpus, folders)):
        with pytest.raises(DataError, match=rf"{name}: got a file that cannot be read"):
            ask({"text": tmp_path})


ODD_NAMES = ("a[1]", "a*?b#c", "%41", "hf:{x}", "caf\u00e9 'b' \"c\"\n\\", "~")


@pytest.mark.parametrize("source", ["jsonl_folder", "text_folder", "streamed"])
@pytest.mark.parametrize("odd", ODD_NAMES)
def test_no_character_of_a_path_is_a_pattern(source, odd, tmp_path):
    """A folder `a[1]` stands beside `a1`, whose text a pattern would find."""
    for name in (odd, "a1", "A"):
        (tmp_path / name).mkdir()
        write(tmp_path / name / f"{odd}.jsonl", [{"text": f"of {name}"}])
        write(tmp_path / name / "a1.jsonl", [{"text": "the other"}])
    corpus = CORPORA.parse({"name": source}, "test")
    found = documents(corpus, {"text": tmp_path / odd})
    assert {name: text for name, (_, _, text) in found.items()} == {
        f"{odd}.jsonl:1": f"of {odd}",
        "a1.jsonl:1": "the other",
    }


@pytest.mark.parametrize("source", ["jsonl_folder", "streamed"])
def test_linked_folders_are_read_once_and_the_others_are_counted(source, tmp_path):
    root, other = tmp_path / "text", tmp_path / "other"
    write(root / "real" / "a.jsonl", [{"text": "a"}])
    write(other / "deep" / "b.jsonl", [{"text": "b"}])
    corpus = CORPORA.parse({"name": source}, "test")
    assert corpus.notes({"text": root}) == []
    for name, target in (("again", other), ("linked", other), ("0", root / "real")):
        (root / name).symlink_to(target)
    (other / "back").symlink_to(root / "real")
    names = sorted(documents(corpus, {"text": root}))
    assert names == ["again/deep/b.jsonl:1", "real/a.jsonl:1"]
    (note,) = corpus.notes({"text": root})
    assert note.startswith("3 links")
    assert note.endswith("0, again/back, linked")
    (root / "real" / "up").symlink_to(root)
    with pytest.raises(DataError, match=r"up: got a link to a folder that contains the link"):
        corpus.digest({"text": root})


@pytest.mark.parametrize("source", ["jsonl_folder", "streamed"])
def test_a_byte_order_mark_and_line_ends_of_windows_are_no_text(source, tmp_path):
    content = b'\xef\xbb\xbf{"text": "a"}\r\n\r\n{"text": "b\\r\\n"}\r\n'
    (tmp_path / "x.jsonl").write_bytes(content)
    found = documents(CORPORA.parse({"name": source}, "test"), {"text": tmp_path})
    assert sorted(text for _, _, text in found.values()) == ["a", "b\r\n"]
    (tmp_path / "x.jsonl").write_bytes(b'\xef\xbb\xbf{"text": "\xff"}')
    with pytest.raises(DataError, match=r"x\.jsonl: got byte 13, which is not UTF-8"):
        documents(folder_corpus(), {"text": tmp_path})


def test_a_text_file_has_the_same_text_and_digest_with_line_ends_of_windows(tmp_path):
    contents = {"plain": b"a\nb", "windows": b"\xef\xbb\xbfa\r\nb", "other": b"a\n\nb"}
    digests = {}
    for name, content in contents.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.txt").write_bytes(content)
        folders = {"text": tmp_path / name}
        digests[name] = folder_corpus().digest(folders)
        (found,) = documents(folder_corpus(), folders).values()
        assert found[2] == ("a\n\nb" if name == "other" else "a\nb")
    assert digests["plain"] == digests["windows"] != digests["other"]
    raw = hashlib.sha256(contents["plain"]).hexdigest()
    assert digests["plain"] == hashlib.sha256(f"{raw} x.txt\n".encode()).hexdigest()


zstd = partial(pa.compress, codec="zstd", asbytes=True)


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("jsonl_folder", "x.jsonl"),
        ("text_folder", "x.txt"),
        ("streamed", "x.jsonl"),
        ("streamed", "x.jsonl.gz"),
        ("streamed", "x.jsonl.zst"),
    ],
)
def test_a_huge_document_is_refused(source, name, tmp_path, monkeypatch):
    monkeypatch.setattr(_rows, "MAX_DOCUMENT_BYTES", 1000)
    content = b'{"text": "' + b"a" * 2000 + b'"}'
    packed = {".gz": gzip.compress, ".zst": zstd}.get(Path(name).suffix, bytes)
    (tmp_path / name).write_bytes(packed(content))
    corpus = CORPORA.parse({"name": source}, "test")
    with pytest.raises(DataError, match=r"of more than 1,000 bytes"):
        documents(corpus, {"text": tmp_path})


BOMB = """
import resource, sys
from pathlib import Path
from lce_core.corpora import CORPORA, Place
from lce_core.errors import DataError
corpus = CORPORA.parse({"name": "streamed"}, "test")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    list(corpus.blocks({"text": Path(sys.argv[1])}, Place()))
except DataError as error:
    print(error)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_a_bomb_is_refused_in_little_memory(tmp_path):
    """Two gigabytes of one line in 70 kB."""
    part = zstd(b"a" * (1 << 26))
    (tmp_path / "x.jsonl.zst").write_bytes(part * 32)
    command = [sys.executable, "-c", BOMB, str(tmp_path)]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    message, kilobytes = answer.stdout.splitlines()
    assert "x.jsonl.zst:1: got a line of more than 134,217,728 bytes" in message
    assert int(kilobytes) < 600_000


def test_a_file_name_that_is_not_utf8_is_refused(tmp_path):
    try:
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.txt")).write_text("a")
    except OSError:
        pytest.skip("this file system refuses such names itself")
    with pytest.raises(DataError, match="is not UTF-8"):
        folder_corpus().digest({"text": tmp_path})
