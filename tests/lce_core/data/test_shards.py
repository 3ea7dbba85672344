"""Token shards are compared with documents encoded here as UTF-8 bytes; rows cut from them, with
rows packed without them; runs with any number of workers or killed anywhere, byte by byte."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

from lce_core.corpora import CORPORA, Block, Document, Place, StreamedCorpus
from lce_core.data import tokenised
from lce_core.data.held_out import HeldOutText
from lce_core.data.shards import open_shards, write_shards
from lce_core.errors import DataError, StoreError
from lce_core.models import MODELS
from lce_core.recipe import Upsampling
from tests.lce_core.data.test_packing import hold_out
from tests.lce_core.data.test_packing import pack as pack_documents
from tests.support.data.slimpajama import CORPUS, DOMAINS, small_shards
from tests.support.data.slimpajama import write as write_text
from tests.support.repository import ROOT

BASE = MODELS.load("toy_llama")()
TOKENIZER = BASE.tokenizer(None)
MIX = Upsampling(long_document_tokens=200, short_keep_rate=0.2)


def corpus(**changes: Any) -> StreamedCorpus:
    found = CORPORA.parse({**CORPUS, **changes}, "test")
    assert isinstance(found, StreamedCorpus)
    return found


@pytest.fixture
def text(tmp_path, monkeypatch) -> Path:
    return small_shards(tmp_path / "text", monkeypatch)


def write(
    text: Path,
    out: Path,
    workers: int = 1,
    source: StreamedCorpus | None = None,
    max_ids: int = BASE.max_ids,
) -> Any:
    out.mkdir(exist_ok=True)
    return write_shards(
        source or corpus(),
        TOKENIZER,
        max_ids=max_ids,
        folders={"text": text},
        progress=out.with_name(f"{out.name}-progress"),
        out=out,
        workers=workers,
        report=lambda event: None,
    )


def content(folder: Path) -> dict[str, bytes]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def pack(text: Path, out: Path, shards: Path | None, **changes: Any) -> Any:
    out.mkdir()
    options = {"row_length": 64, "num_rows": 60, "upsampling": MIX, "model": BASE, **changes}
    source = options.pop("source", corpus())
    return pack_documents(source, out, folders={"text": text}, shards=shards, **options)


def test_every_document_is_there_with_its_domain_and_split(text, tmp_path):
    manifest = write(text, tmp_path / "out")
    assert len(manifest["segments"]) > 3
    documents = [d for b in corpus().blocks({"text": text}, Place()) for d in b.documents]
    assert manifest["documents"] == len(documents) == 360
    both = {split: open_shards(tmp_path / "out", split) for split in ("train", "held_out")}
    for index, document in enumerate(documents):
        split = corpus().split(document.name)
        other = "train" if split == "held_out" else "held_out"
        expected = list(document.text.encode())
        assert both[split].document(index).tolist() == expected
        assert DOMAINS[both[split].domains[index]] == document.domain
        assert both[split].lengths[index] == len(expected)
        assert both[other].lengths[index] == 0
        assert both[other].document(index).size == 0
    assert both["train"].document(0).dtype == np.uint16
    total = sum(len(document.text.encode()) for document in documents)
    assert manifest["tokens"] == total == sum(entry["tokens"] for entry in manifest["domains"])


def test_no_byte_depends_on_the_number_of_workers_or_on_which_is_slow(text, tmp_path, monkeypatch):
    encoded = tokenised.encoded

    def late(tokenizer: Any, batch: Sequence[Document], *rest: Any) -> Any:
        time.sleep(0.02 * (sum(map(ord, batch[0].name)) % 3))
        return encoded(tokenizer, batch, *rest)

    found = []
    for workers in (1, 5):
        out = tmp_path / str(workers)
        write(text, out, workers)
        pack(text, tmp_path / f"rows-{workers}", out)
        found.append((content(out), content(tmp_path / f"rows-{workers}")))
        monkeypatch.setattr(tokenised, "encoded", late)
    assert found[0] == found[1]


def test_rows_and_held_out_text_are_those_of_text_that_is_tokenised_at_once(text, tmp_path):
    write(text, tmp_path / "shards")
    cut = pack(text, tmp_path / "cut", tmp_path / "shards")
    direct = pack(text, tmp_path / "direct", None)
    for name in ("rows.bin", "weights.bin"):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "direct" / name).read_bytes()
    drawn = ("domain", "drawn_documents", "drawn_tokens", "drawn_share", "tokens", "share")
    for one, other in zip(cut["domains"], direct["domains"], strict=True):
        assert {key: one[key] for key in drawn} == {key: other[key] for key in drawn}
    streams = []
    for name, source in (("a", tmp_path / "shards"), ("b", None)):
        out = tmp_path / name
        out.mkdir()
        hold_out(corpus(), out, 500, folders={"text": text}, shards=source)
        streams.append([HeldOutText.open(out).stream(domain).tolist() for domain in DOMAINS])
    assert streams[0] == streams[1]


def test_no_model_trains_on_a_copy_of_a_held_out_document(tmp_path):
    """Fifty texts, each three times, 30 % held out: what is packed with shards and without."""
    entries = [{"text": f"text {number % 50} of the set"} for number in range(150)]
    write_text(tmp_path / "text" / "a.jsonl", entries)
    source = CORPORA.parse({"name": "streamed", "held_out_percent": 30}, "test")
    assert isinstance(source, StreamedCorpus)
    write(tmp_path / "text", tmp_path / "out", source=source)
    documents = [
        d for b in source.blocks({"text": tmp_path / "text"}, Place()) for d in b.documents
    ]
    held_out = {d.text for d in documents if source.split(d.name) == "held_out"}
    train = [d.text for d in documents if source.split(d.name) == "train"]
    kept = [text for text in train if text not in held_out]
    assert 0 < len(kept) < len(train)
    pool = open_shards(tmp_path / "out", "train")
    assert pool.num_copies == len(train) - len(kept)
    found = [
        bytes(pool.document(n).astype(np.uint8)).decode() for n in np.flatnonzero(pool.lengths)
    ]
    assert found == kept
    scored = open_shards(tmp_path / "out", "held_out")
    assert np.count_nonzero(scored.lengths) == len(documents) - len(train)
    manifests = [
        pack(tmp_path / "text", tmp_path / name, shards, source=source)
        for name, shards in (("cut", tmp_path / "out"), ("direct", None))
    ]
    assert [one["left_out_copies"] for one in manifests] == [pool.num_copies] * 2
    rows = [(tmp_path / name / "rows.bin").read_bytes() for name in ("cut", "direct")]
    assert rows[0] == rows[1]


def test_the_query_of_the_documentation_counts_the_documents_of_each_file(tmp_path):
    (query,) = re.findall(
        r"```sql\n(SELECT regexp_replace.*?)```", (ROOT / "docs/data.md").read_text(), re.DOTALL
    )
    numbers = {"a [1]:2.jsonl": 1100, "b/a.jsonl": 3, "b/none.jsonl": 0}
    for name, number in numbers.items():
        lines = [{"text": f"{name} {line}"} for line in range(number)]
        write_text(tmp_path / "text" / name, lines)
    source = CORPORA.parse({"name": "streamed"}, "test")
    assert isinstance(source, StreamedCorpus)
    artifacts = {
        kind: tmp_path / "artifacts" / kind / "one" for kind in ("rows", "held_out", "tokens")
    }
    for folder in artifacts.values():
        folder.parent.mkdir(parents=True)
    write(tmp_path / "text", tmp_path / "shards", source=source)
    (tmp_path / "shards").rename(artifacts["tokens"])
    pack(tmp_path / "text", artifacts["rows"], None, source=source)
    artifacts["held_out"].mkdir()
    hold_out(source, artifacts["held_out"], 500, folders={"text": tmp_path / "text"})

    def counts(kind: str) -> dict[str, int]:
        asked = query.replace("lce-home", str(tmp_path)).replace("/tokens/", f"/{kind}/")
        return {file: documents for file, documents, _ in duckdb.sql(asked).fetchall()}

    read: Counter[str] = Counter()
    for kind in ("rows", "held_out"):
        read.update(counts(kind))
    assert read == {name: number for name, number in numbers.items() if number}
    assert counts("tokens") == read


class Interrupted(StreamedCorpus):
    """A corpus whose source breaks off after some blocks."""

    whole: StreamedCorpus
    most: int

    def domains(self) -> tuple[str, ...]:
        return self.whole.domains()

    def split(self, name: str) -> Any:
        return self.whole.split(name)

    def blocks(self, folders: Any, start: Place) -> Iterator[Block]:
        for number, block in enumerate(self.whole.blocks(folders, start)):
            if number == self.most:
                raise ConnectionError("broken off")
            yield block


KILLED = """
import os, signal, sys
from pathlib import Path
from lce_core.corpora import streamed
from lce_core.data import shards
from tests.lce_core.data import test_shards as t
streamed.BLOCK_ROWS, shards.SEGMENT_TOKENS = 13, 8000
text, out, left = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
def report(event):
    global left
    left -= 1
    if not left:
        os.kill(os.getpid(), signal.SIGKILL)
shards.write_shards(t.corpus(), t.TOKENIZER, max_ids=t.BASE.max_ids, folders={"text": text},
    out=out, workers=2, progress=out.with_name(out.name + "-progress"), report=report)
"""


def test_a_token_without_embedding_is_refused(text, tmp_path):
    with pytest.raises(DataError, match="expected tokens of the model's vocabulary of 100"):
        write(text, tmp_path / "out", max_ids=100)


@pytest.mark.slow
def test_a_killed_process_is_gone_on_from(text, tmp_path):
    write(text, tmp_path / "whole")
    out = tmp_path / "out"
    out.mkdir()
    done = subprocess.run([sys.executable, "-c", KILLED, str(text), str(out), "20"])
    assert done.returncode == -signal.SIGKILL
    assert not list(out.iterdir())
    sealed = len(list((tmp_path / "out-progress").glob("[0-9]*")))
    assert sealed >= 2
    write(text, out, workers=5)
    assert content(out) == content(tmp_path / "whole")


@pytest.mark.parametrize("damage", ["none", "short", "gone", "facts", "aside"])
def test_a_source_that_breaks_off_is_gone_on_from_and_a_damaged_segment_written_again(
    damage, text, tmp_path
):
    write(text, tmp_path / "whole")
    with pytest.raises(ConnectionError):
        write(text, tmp_path / "out", 1, Interrupted(whole=corpus(), most=20))
    progress = tmp_path / "out-progress"
    assert (progress / "00001").is_dir()
    if damage == "short":
        os.truncate(next((progress / "00001").glob("*.bin")), 10)
    elif damage == "gone":
        shutil.rmtree(progress / "00000")
    elif damage == "facts":
        (progress / "00001" / "segment.json").write_text("{")
    elif damage == "aside":
        (progress / "00001").rename(progress / ".writing")
    write(text, tmp_path / "out")
    assert content(tmp_path / "out") == content(tmp_path / "whole")


def test_a_damaged_shard_is_never_served(text, tmp_path):
    write(text, tmp_path / "out")
    shard = next((tmp_path / "out" / "00001").glob("*.bin"))
    whole = shard.read_bytes()
    shard.write_bytes(whole[:-2])
    with pytest.raises(
        StoreError, match=r"the \d+ bytes that manifest\.json names; run the study again"
    ):
        open_shards(tmp_path / "out", "train")
    shard.write_bytes(whole)
    open_shards(tmp_path / "out", "train")
    (tmp_path / "out" / "00000" / "documents.parquet").write_bytes(b"PAR1")
    with pytest.raises(StoreError, match="no readable index"):
        open_shards(tmp_path / "out", "train")


MEMORY = """
import resource, sys
from pathlib import Path
import duckdb
import numpy as np
from lce_core.corpora import Block, Document, Place
from lce_core.data import tokenised
from tests.lce_core.data import test_shards as t
from tests.lce_core.data.test_packing import Plain

LENGTH, A_BLOCK = 8000, 50

class Long(t.StreamedCorpus):
    blocks_in_all: int
    def domains(self):
        return ("a", "b")
    def split(self, name):
        return "train"
    def blocks(self, folders, start):
        for number in range(start.file, self.blocks_in_all):
            named = range(number * A_BLOCK, (number + 1) * A_BLOCK)
            documents = tuple(Document(str(n), "ab"[n % 2], "") for n in named)
            yield Block(documents, Place(number + 1, 0, (number + 1) * A_BLOCK))

def ids(tokenizer, batch, *_):  # of real length: tokenising would take minutes
    lengths = np.full(A_BLOCK, LENGTH)
    rng = np.random.default_rng(int(batch[0].name))
    found = rng.integers(0, 256, lengths.sum(), dtype=np.uint16)
    return found, lengths, np.arange(A_BLOCK) % 2

tokenised.encoded = ids
folder = Path(sys.argv[1])
for blocks in map(int, sys.argv[2:]):
    out, tokens = folder / str(blocks), blocks * A_BLOCK * LENGTH
    manifest = t.write(folder, out, 2, Long(blocks_in_all=blocks))
    assert manifest["tokens"] == tokens
    t.pack(folder, folder / f"rows-{blocks}", out, row_length=32768, num_rows=tokens // 32768,
        model=Plain(), source=Long(blocks_in_all=blocks))
    print(tokens, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_tokens(tmp_path):
    """A billion tokens in under 2 GB, by the bytes that each further token takes."""
    answer = subprocess.run(
        [sys.executable, "-c", MEMORY, str(tmp_path), "100", "500"],
        capture_output=True,
        text=True,
    )
    assert answer.returncode == 0, answer.stderr
    (few, before), (many, after) = (map(int, line.split()) for line in answer.stdout.splitlines())
    assert many - few == 160_000_000
    a_token = max(0, after - before) / (many - few)
    assert after + a_token * (10**9 - many) < 2e9, (before, after)
    assert after - before < 2 * (many - few) / 4, "a quarter of the tokens is in memory"
