"""Rows are compared token by token with documents encoded here as UTF-8 bytes, never with the
code's own tokens; hypothesis varies documents, row length and block size. Draws from synthetic
corpora are compared with the definition, within four standard deviations where chance decides."""

import json
import resource
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from lce_core.corpora import Corpus, Document, Split
from lce_core.data import packing
from lce_core.data.held_out import HeldOutText, pack_held_out
from lce_core.data.packing import PackedRows, best_fit, pack_rows
from lce_core.data.sampling import Draw, draw_documents
from lce_core.errors import DataError, SpecError, StoreError
from lce_core.models import LanguageModel, ModelShape
from lce_core.models.toy_llama import ToyLlama
from lce_core.recipe import Upsampling

KEEP_ALL = Upsampling(long_document_tokens=1, short_keep_rate=1.0)


class Given(Corpus):
    """The same documents in both splits."""

    plugin_name: ClassVar[str] = "given"
    leaves_out_copies: ClassVar[bool] = False
    texts: tuple[tuple[str, str], ...]
    """(domain, text) pairs."""
    names: tuple[str, ...] = ("a", "b")

    def domains(self) -> tuple[str, ...]:
        return self.names

    def documents(self, split: Split, folders: Mapping[str, Path]) -> Iterator[Document]:
        for number, (domain, text) in enumerate(self.texts):
            yield Document(f"{split}-{number}", domain, text)


class Plain(ToyLlama):
    """The toy without its last touch on rows."""

    prepare_rows: ClassVar[Any] = LanguageModel.prepare_rows


class Wide(Plain):
    """A vocabulary beyond 16 bits."""

    shape: ClassVar[ModelShape] = ModelShape(2, 96, 256, 70_000)


class Narrow(Plain):
    """A model with embeddings for fewer tokens than the tokenizer has."""

    reads_config: ClassVar[bool] = True
    shape: ClassVar[ModelShape] = ModelShape(2, 96, 256, 100)


def tokenizer_with(**special: str) -> PreTrainedTokenizerBase:
    tokenizer = ToyLlama().tokenizer(None)
    tokenizer.add_special_tokens(special)
    return tokenizer


PLAIN_TOKENIZER = ToyLlama().tokenizer(None)
SEPARATING_TOKENIZER = tokenizer_with(bos_token="<s>", eos_token="</s>")
TOKENIZERS = st.sampled_from(
    [
        (PLAIN_TOKENIZER, []),
        (SEPARATING_TOKENIZER, [392]),
        (tokenizer_with(eos_token="</s>"), [392]),
    ]
)
"""Tokenizers with the tokens that they put before a document."""


def pack(corpus: Corpus, out: Path, *, model: LanguageModel | None = None, **changes: Any) -> Any:
    arguments: dict[str, Any] = {
        "tokenizer": PLAIN_TOKENIZER,
        "row_length": 16,
        "num_rows": 8,
        "upsampling": KEEP_ALL,
        "seed": 0,
        "folders": {},
        "out": out,
        "report": lambda event: None,
    }
    return pack_rows(corpus, model or Plain(), **(arguments | changes))


def hold_out(corpus: Corpus, out: Path, tokens: int, **changes: Any) -> Any:
    arguments: dict[str, Any] = {
        "tokenizer": PLAIN_TOKENIZER,
        "max_ids": ToyLlama().max_ids,
        "folders": {},
        "out": out,
        "report": lambda event: None,
    }
    return pack_held_out(corpus, tokens_per_domain=tokens, **(arguments | changes))


def all_rows(folder: Path) -> tuple[Any, Any]:
    rows = PackedRows.open(folder)
    return rows.read(np.arange(len(rows)))


documents = st.lists(
    st.tuples(st.sampled_from(["a", "b"]), st.text(max_size=60)), min_size=1, max_size=12
).filter(lambda pairs: any(text for _, text in pairs))


packings = given(
    texts=documents,
    row_length=st.integers(2, 40),
    num_rows=st.integers(1, 12),
    block_tokens=st.sampled_from([1, 50, 1 << 20]),
    separating=TOKENIZERS,
)


@packings
def test_rows_are_the_beginnings_of_documents_in_their_order(
    texts, row_length, num_rows, block_tokens, separating
):
    corpus = Given(texts=tuple(texts))
    tokenizer, before = separating
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "BLOCK_TOKENS", block_tokens)
        out = Path(name)
        manifest = pack(corpus, out, tokenizer=tokenizer, row_length=row_length, num_rows=num_rows)
        tokens, weights = all_rows(out)
        order = pq.read_table(out / "order.parquet").to_pydict()
        bounds = PackedRows.open(out).document_bounds(np.arange(num_rows)).tolist()
    assert tokens.shape == (num_rows, row_length)
    joined: list[int] = []
    ends = [*order["start"][1:], num_rows * row_length]
    for document, start, end in zip(order["document"], order["start"], ends, strict=True):
        whole = before + list(texts[document][1].encode())
        assert start == len(joined) < end <= start + len(whole)
        joined += whole[: end - start]
    assert tokens.ravel().tolist() == joined
    assert manifest["separator"] == (before or [None])[0]
    assert manifest["drawn_documents"] == len(order["document"])
    assert (weights[:, 1:] == 1).all()
    assert (weights[:, 0] == 0).all()
    assert bounds == sorted({*order["start"], *range(0, tokens.size + 1, row_length)})


@given(lengths=st.lists(st.integers(1, 12), min_size=1, max_size=40), num_rows=st.integers(1, 12))
def test_best_fit_chooses_the_row_with_the_least_space_that_suffices(lengths, num_rows):
    spaces, expected = [12] * num_rows, [-1] * len(lengths)
    for document in sorted(range(len(lengths)), key=lambda one: -lengths[one]):
        fitting = [row for row in range(num_rows) if spaces[row] >= lengths[document]]
        if fitting:
            row = min(fitting, key=lambda one: spaces[one])
            expected[document] = row
            spaces[row] -= lengths[document]
    assert best_fit(np.array(lengths), 12, num_rows).tolist() == expected


@packings
def test_best_fit_cuts_only_documents_longer_than_a_row_and_pads_without_weight(
    texts, row_length, num_rows, block_tokens, separating
):
    tokenizer, before = separating
    how = {"tokenizer": tokenizer, "row_length": row_length, "num_rows": num_rows}
    mixture = Upsampling(long_document_tokens=20, short_keep_rate=1.0)
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "BLOCK_TOKENS", block_tokens)
        out = Path(name)
        given_texts = Given(texts=tuple(texts))
        manifest = pack(given_texts, out, packing="best_fit", upsampling=mixture, **how)
        tokens, weights = all_rows(out)
        order = pq.read_table(out / "order.parquet").to_pylist()
        bounds = PackedRows.open(out).document_bounds(np.arange(num_rows)).tolist()
    padding, expected = num_rows * row_length, {0, num_rows * row_length}
    packed, packed_long = dict.fromkeys("ab", 0), dict.fromkeys("ab", 0)
    for piece in order:
        domain, text = texts[piece["document"]]
        whole = before + list(text.encode())
        row, first = divmod(piece["start"], row_length)
        own = slice(first, first + piece["tokens"])
        offset = slice(piece["offset"], piece["offset"] + piece["tokens"])
        assert own.stop <= row_length
        assert piece["offset"] % row_length == 0
        assert tokens[row, own].tolist() == whole[offset]
        assert (weights[row, own][int(first == 0) :] == 1).all()
        padding -= piece["tokens"]
        packed[domain] += piece["tokens"]
        packed_long[domain] += piece["tokens"] * (len(whole) >= 20)
        expected |= {row * row_length, piece["start"], piece["start"] + piece["tokens"]}
    assert bounds == sorted(expected)
    assert manifest["padding_tokens"] == padding
    for key, numbers in (("packed_tokens", packed), ("packed_long_tokens", packed_long)):
        assert [domain[key] for domain in manifest["domains"]] == list(numbers.values())
    assert (weights == 0).sum() == padding + num_rows  # the first token of a row has no weight


def test_equal_arguments_give_equal_bytes_and_another_seed_others(tmp_path):
    corpus = Given(texts=tuple(("ab"[i % 2], f"document {i} " * 9) for i in range(40)))
    outputs = []
    for number, seed in enumerate((0, 0, 1)):
        out = tmp_path / str(number)
        out.mkdir()
        manifest = pack(corpus, out, model=ToyLlama(), row_length=64, num_rows=30, seed=seed)
        assert json.loads((out / "manifest.json").read_text()) == manifest
        outputs.append({file.name: file.read_bytes() for file in sorted(out.iterdir())})
    assert outputs[0] == outputs[1]
    assert outputs[0]["rows.bin"] != outputs[2]["rows.bin"]


def test_the_model_gives_rows_their_last_touch(tmp_path):
    corpus = Given(texts=(("a", "some text to hide keys in. " * 200),))
    (tmp_path / "plain").mkdir()
    (tmp_path / "toy").mkdir()
    pack(corpus, tmp_path / "plain", row_length=128, num_rows=20)
    manifest = pack(corpus, tmp_path / "toy", model=ToyLlama(), row_length=128, num_rows=20)
    (plain, _), (touched, weights) = (all_rows(tmp_path / name) for name in ("plain", "toy"))
    assert (touched.dtype, weights.dtype) == (np.int64, np.float32)
    assert manifest["weighted"]
    for row, before in zip(touched, plain, strict=True):
        text = row[row < 256]
        assert np.array_equal(text, before[: len(text)])
        assert len(text) < len(row)
    answers = np.zeros(touched.shape, dtype=bool)
    answers[:, 1:] = touched[:, :-1] >= ToyLlama.keys.first_query
    assert np.array_equal(weights == 3, answers)
    assert (weights[:, 1:][~answers[:, 1:]] == 1).all()


def test_text_that_spells_a_special_token_stays_text(tmp_path):
    text = "<s><key-0-00> is not a key, <query-1> no query. "
    corpus = Given(texts=(("a", text),))
    pack(corpus, tmp_path, tokenizer=SEPARATING_TOKENIZER, row_length=len(text) + 1, num_rows=1)
    tokens, _ = all_rows(tmp_path)
    assert tokens[0].tolist() == [392, *text.encode()]
    # The tokenizer itself is as it was.
    assert SEPARATING_TOKENIZER("<s>", add_special_tokens=False)["input_ids"] == [392]


def test_tokens_take_two_bytes_where_the_vocabulary_fits(tmp_path):
    corpus = Given(texts=(("a", "caf\u00e9 " * 50),))
    for name, model, size in (("narrow", Plain(), 2), ("wide", Wide(), 4)):
        (tmp_path / name).mkdir()
        pack(corpus, tmp_path / name, model=model)
        assert (tmp_path / name / "rows.bin").stat().st_size == 8 * 16 * size
    narrow, wide = (all_rows(tmp_path / name)[0] for name in ("narrow", "wide"))
    assert np.array_equal(narrow, wide)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ((("a", ""),), "no tokens in the training split"),
        ((("c", "x"),), "train-0: got domain 'c'"),
    ],
)
def test_a_corpus_without_text_or_of_another_domain_is_refused(texts, message, tmp_path):
    with pytest.raises(DataError, match=message):
        pack(Given(texts=texts), tmp_path)
    with pytest.raises(SpecError, match="at least one row of two tokens"):
        pack(Given(texts=texts), tmp_path, row_length=1)
    with pytest.raises(DataError, match="domain 'b': got no held-out text"):
        hold_out(Given(texts=(("a", "x"),)), tmp_path, 10)


def test_a_token_outside_the_vocabulary_is_refused(tmp_path):
    corpus = Given(texts=(("a", "x"), ("b", "x")))
    with pytest.raises(DataError, match="train-0: got token 120"):
        pack(corpus, tmp_path, model=Narrow())
    with pytest.raises(DataError, match="held_out-0: got token 120"):
        hold_out(corpus, tmp_path, 10, max_ids=Narrow().max_ids)


@contextmanager
def file_size_limit(num_bytes: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_file_that_cannot_grow_raises_instead_of_killing_the_process(tmp_path):
    corpus = Given(texts=(("a", "x" * 100_000),))
    with file_size_limit(250_000), pytest.raises(OSError, match="File too large"):
        pack(corpus, tmp_path, num_rows=100_000)
    assert not (tmp_path / "manifest.json").exists()
    assert not (tmp_path / "tokens.scratch").exists()


def test_a_damaged_folder_is_refused(tmp_path):
    pack(Given(texts=(("a", "x" * 128),)), tmp_path)
    rows = tmp_path / "rows.bin"
    rows.write_bytes(rows.read_bytes()[:-2])
    with pytest.raises(StoreError, match=r"rows\.bin: got 254 bytes; expected the 256 bytes"):
        PackedRows.open(tmp_path)
    rows.unlink()
    with pytest.raises(StoreError, match=r"rows\.bin: got no such file"):
        PackedRows.open(tmp_path)
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(StoreError, match="got an unreadable file"):
        PackedRows.open(tmp_path)


@given(
    texts=documents,
    tokens=st.integers(1, 200),
    separating=TOKENIZERS,
    limit=st.none() | st.integers(1, 60),
)
def test_held_out_streams_are_documents_cut_at_their_limit_and_at_the_end(
    texts, tokens, separating, limit
):
    texts = [("a", "first"), ("b", "second"), *texts]
    tokenizer, before = separating
    with tempfile.TemporaryDirectory() as name:
        manifest = hold_out(
            Given(texts=tuple(texts)),
            Path(name),
            tokens,
            tokenizer=tokenizer,
            document_tokens=limit,
        )
        held_out = HeldOutText.open(Path(name))
        streams = {domain: held_out.stream(domain).tolist() for domain in held_out.domains}
        starts = {d: held_out.document_starts(d).tolist() for d in held_out.domains}
    assert manifest["separator"] == (before or [None])[0]
    assert list(streams) == ["a", "b"]
    for entry in manifest["domains"]:
        domain = entry["domain"]
        whole = [[*before, *text.encode()][:limit] for d, text in texts if d == domain and text]
        stream, bounds = streams[domain], [*starts[domain], len(streams[domain])]
        assert len(stream) == min(tokens, sum(map(len, whole))) == entry["tokens"]
        pieces = [stream[i:j] for i, j in pairwise(bounds)]
        assert bounds[0] == 0
        for piece in pieces[:-1]:
            whole.remove(piece)
        assert any(document[: len(pieces[-1])] == pieces[-1] for document in whole)


def test_a_part_of_the_held_out_text_does_not_depend_on_the_rest(tmp_path):
    texts = tuple(("a", f"document {i} ") for i in range(50))
    (tmp_path / "few").mkdir()
    (tmp_path / "many").mkdir()
    hold_out(Given(texts=texts, names=("a",)), tmp_path / "few", 100)
    hold_out(Given(texts=texts, names=("a",)), tmp_path / "many", 400)
    few, many = (HeldOutText.open(tmp_path / name).stream("a") for name in ("few", "many"))
    assert np.array_equal(few, many[:100])
    assert PLAIN_TOKENIZER.decode(many[:40]) != "".join(text for _, text in texts)[:40]


class Marked(ToyLlama):
    """The toy with a number drawn for each row in place of its first token."""

    def prepare_rows(
        self, rows: NDArray[np.uint32], rng: np.random.Generator
    ) -> tuple[NDArray[np.uint32], NDArray[np.uint8]]:
        rows = rows.copy()
        rows[:, 0] = rng.integers(256, size=len(rows))
        return rows, np.ones(rows.shape, dtype=np.uint8)


LETTERS = Given(texts=tuple(zip("ababab", (letter * 16 for letter in "uvwxyz"), strict=True)))


def test_each_block_of_rows_draws_its_own_last_touch(tmp_path, monkeypatch):
    monkeypatch.setattr(packing, "BLOCK_TOKENS", 16 * 8)
    pack(LETTERS, tmp_path, model=Marked(), num_rows=32)
    tokens, _ = PackedRows.open(tmp_path).read(np.arange(32))
    blocks = {tuple(tokens[start : start + 8, 0]) for start in range(0, 32, 8)}
    assert len(blocks) == 4


NAMES = ("web", "books", "code")
MIX = Upsampling(long_document_tokens=1000, short_keep_rate=0.1)


def corpus(seed: int = 0, size: int = 30_000) -> tuple[np.ndarray, np.ndarray]:
    """Many short web pages, few long books, code in between."""
    rng = np.random.default_rng(seed)
    domains = rng.choice(3, size=size, p=[0.8, 0.02, 0.18])
    scale = np.array([300.0, 20_000.0, 900.0])[domains]
    return domains, (rng.exponential(scale) + 1).astype(np.int64)


def draw(domains: Any, lengths: Any, budget: int, seed: int = 0, mix: Upsampling = MIX) -> Draw:
    return draw_documents(
        np.array(domains), np.array(lengths), NAMES, budget=budget, upsampling=mix, seed=seed
    )


def test_long_documents_are_always_kept_and_short_ones_at_the_rate():
    domains, lengths = corpus()
    drawn = draw(domains, lengths, int(lengths.sum() // 5))
    assert drawn.passes.max() == 0
    web = drawn.documents[domains[drawn.documents] == 0]
    long = lengths >= MIX.long_document_tokens
    candidates = domains == 0
    # Kept long and short documents are in the ratio of candidates, short ones at a tenth.
    expected = 0.1 * (candidates & ~long).sum() / (candidates & long).sum()
    kept_long, kept_short = long[web].sum(), (~long[web]).sum()
    error = expected * np.sqrt(1 / kept_long + 1 / kept_short)
    assert abs(kept_short / kept_long - expected) < 4 * error


@given(
    lengths=st.lists(st.integers(0, 3000), min_size=1, max_size=30),
    budget=st.integers(1, 50_000),
    seed=st.integers(0, 100),
    data=st.data(),
)
def test_every_budget_is_met_in_the_corpus_mixture_and_no_pass_repeats_a_document(
    lengths, budget, seed, data
):
    sizes = np.array(lengths)
    domains = np.array(
        data.draw(st.lists(st.integers(0, 2), min_size=len(lengths), max_size=len(lengths)))
    )
    if sizes.sum() == 0:
        with pytest.raises(DataError, match="no tokens"):
            draw(domains, sizes, budget, seed)
        return
    drawn = draw(domains, sizes, budget, seed)
    assert drawn.tokens.sum() == budget
    assert ((drawn.tokens > 0) & (drawn.tokens <= sizes[drawn.documents])).all()
    pairs = list(zip(drawn.documents.tolist(), drawn.passes.tolist(), strict=True))
    assert len(set(pairs)) == len(pairs)
    is_long = sizes[drawn.documents] >= 1000
    for domain, entry in enumerate(drawn.statistics):
        of_domain = domains[drawn.documents] == domain
        assert (drawn.tokens < sizes[drawn.documents])[of_domain].sum() <= 1
        assert entry["share"] == pytest.approx(sizes[domains == domain].sum() / sizes.sum())
        assert entry["drawn_tokens"] == drawn.tokens[of_domain].sum()
        assert abs(entry["drawn_tokens"] - entry["share"] * budget) < 1
        assert entry["drawn_long_tokens"] == drawn.tokens[of_domain & is_long].sum()
        assert entry["drawn_share"] == pytest.approx(entry["drawn_tokens"] / budget)
        assert entry["drawn_documents"] == of_domain.sum()
        assert entry["passes"] == drawn.passes[of_domain].max(initial=-1) + 1


@given(
    lengths=st.lists(st.integers(1, 3000), min_size=6, max_size=30),
    budget=st.integers(1, 50_000),
    web=st.integers(0, 100),
    long_share=st.none() | st.sampled_from([0.0, 0.34, 1.0]),
)
def test_given_shares_of_domains_and_of_long_documents_are_met_to_the_token(
    lengths, budget, web, long_share
):
    sizes = np.array([10, 10, 10, 2000, 2000, 2000, *lengths])  # each domain has both lengths
    domains = np.arange(len(sizes)) % 3
    shares = {"web": web / 100, "code": 1 - web / 100}
    mix = Upsampling(long_document_tokens=1000, long_share=long_share, domain_shares=shares)
    drawn = draw_documents(domains, sizes, NAMES, budget=budget, upsampling=mix, seed=0)
    is_long = sizes[drawn.documents] >= 1000
    assert drawn.tokens.sum() == budget
    for domain, name in enumerate(NAMES):
        own = domains[drawn.documents] == domain
        tokens = drawn.tokens[own].sum()
        assert abs(tokens - shares.get(name, 0) * budget) < 1
        if long_share is not None:
            assert abs(drawn.tokens[own & is_long].sum() - long_share * tokens) < 1


def test_a_share_without_text_is_refused():
    mix = Upsampling(long_document_tokens=1000, long_share=0.5)
    with pytest.raises(DataError, match="no long documents of books in the training split"):
        draw_documents(
            np.array([0, 0, 1]), np.array([2000, 5, 500]), NAMES, budget=900, upsampling=mix, seed=0
        )


def test_a_small_corpus_is_gone_through_again_in_a_new_order():
    lengths = np.full(50, 2000)
    drawn = draw(np.zeros(50, dtype=np.int64), lengths, 250 * 2000)
    assert np.bincount(drawn.passes).tolist() == [50] * 5
    orders = {tuple(drawn.documents[drawn.passes == p]) for p in range(5)}
    assert len(orders) == 5
    assert (np.diff(drawn.passes) >= 0).all()


def test_a_single_short_document_with_a_tiny_rate_still_fills_the_budget():
    rare = Upsampling(long_document_tokens=1000, short_keep_rate=1e-12)
    drawn = draw([0], [10], 95, mix=rare)
    assert drawn.documents.tolist() == [0] * 10


def test_a_document_of_just_the_length_is_long():
    rare = Upsampling(long_document_tokens=10, short_keep_rate=1e-9)
    drawn = draw([0] * 20, [10] * 20, 200, mix=rare)
    assert sorted(drawn.documents) == list(range(20))
    assert drawn.passes.max() == 0
    shorter = draw([0] * 20, [9] * 20, 180, mix=rare)
    assert shorter.passes.max() > 0


def test_domains_are_shuffled_independently():
    drawn = draw([0] * 40 + [1] * 40, [5] * 80, 400, mix=KEEP_ALL)
    first = drawn.documents[drawn.documents < 40]
    second = drawn.documents[drawn.documents >= 40] - 40
    assert sorted(first) == sorted(second) == list(range(40))
    assert first.tolist() != second.tolist()


def test_a_document_stands_where_its_middle_lies_in_its_domain():
    drawn = draw([0] + [1] * 10, [100] + [10] * 10, 200, mix=KEEP_ALL)
    assert drawn.documents.tolist().index(0) == 5
