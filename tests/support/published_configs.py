"""Keys of published config.json files: sizes and everything that concerns RoPE."""

from typing import Any


def sizes(*numbers: int) -> dict[str, int]:
    keys = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
    more = ("num_key_value_heads", "vocab_size", "max_position_embeddings")
    return dict(zip((*keys, *more), numbers, strict=True))


LLAMA2 = {"model_type": "llama", **sizes(4096, 11008, 32, 32, 32, 32000, 4096)}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 8192}  # fmt: skip
QWEN25 = {"model_type": "qwen2", **sizes(3584, 18944, 28, 28, 4, 152064, 32768),
          "rope_theta": 1e6, "use_sliding_window": False}  # fmt: skip
QWEN3 = {"model_type": "qwen3", **sizes(4096, 12288, 36, 32, 8, 151936, 40960), "head_dim": 128,
         "rope_theta": 1000000, "rope_scaling": None, "use_sliding_window": False}  # fmt: skip
QWEN_YARN = {"factor": 4.0, "original_max_position_embeddings": 32768}
YARN = {"type": "yarn", "original_max_position_embeddings": 4096, "finetuned": True}
PHI3 = {"model_type": "phi3", "auto_map": {"AutoModelForCausalLM": "modeling_phi3.Phi3ForCausalLM"},
        "original_max_position_embeddings": 4096, "sliding_window": 262144, "rope_scaling": {
            "type": "longrope", "short_factor": [1.0] * 48, "long_factor": [2.0] * 48}}  # fmt: skip
GPT_OSS = {
    "model_type": "gpt_oss", **sizes(2880, 2880, 24, 64, 8, 201088, 131072), "head_dim": 64,
    "num_local_experts": 32, "num_experts_per_tok": 4, "sliding_window": 128,
    "layer_types": ["sliding_attention", "full_attention"] * 12, "rope_theta": 150000,
    "rope_scaling": {"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0,
                     "original_max_position_embeddings": 4096, "truncate": False},
}  # fmt: skip
CONFIGS: dict[str, dict[str, Any]] = {
    "Llama-2-7b-hf": {**LLAMA2, "rope_scaling": None},
    "CodeLlama-7b-hf": {**LLAMA2, "max_position_embeddings": 16384, "rope_theta": 1000000},
    "vicuna-7b-v1.5-16k": {**LLAMA2, "rope_scaling": {"type": "linear", "factor": 4.0}},
    "Yarn-Llama-2-7b-64k": {
        **LLAMA2, "max_position_embeddings": 65536, "rope_scaling": {**YARN, "factor": 16.0},
    },
    "Yarn-Llama-2-7b-128k": {
        **LLAMA2, "max_position_embeddings": 131072, "rope_scaling": {**YARN, "factor": 32.0},
    },
    "deepseek-coder-6.7b-base": {
        **LLAMA2, "max_position_embeddings": 16384, "rope_theta": 100000,
        "rope_scaling": {"type": "linear", "factor": 4.0},
    },
    "Meta-Llama-3-8B": {
        "model_type": "llama", **sizes(4096, 14336, 32, 32, 8, 128256, 8192),
        "rope_theta": 500000.0, "rope_scaling": None,
    },
    "Llama-3.1-8B": {
        "model_type": "llama", **sizes(4096, 14336, 32, 32, 8, 128256, 131072),
        "rope_theta": 500000.0, "rope_scaling": LLAMA3,
    },
    "Llama-3.2-1B": {
        "model_type": "llama", **sizes(2048, 8192, 16, 32, 8, 128256, 131072), "head_dim": 64,
        "rope_theta": 500000.0, "tie_word_embeddings": True,
        "rope_scaling": {**LLAMA3, "factor": 32.0},
    },
    "Mistral-7B-v0.3": {
        "model_type": "mistral", **sizes(4096, 14336, 32, 32, 8, 32768, 32768),
        "rope_theta": 1000000.0, "sliding_window": None,
    },
    "Mixtral-8x7B-v0.1": {
        "model_type": "mixtral", **sizes(4096, 14336, 32, 32, 8, 32000, 32768),
        "rope_theta": 1000000.0, "sliding_window": None, "num_local_experts": 8,
        "num_experts_per_tok": 2,
    },
    "Qwen2.5-7B-Instruct": QWEN25,
    "Qwen2.5-7B-Instruct with its model card's YaRN": {
        **QWEN25, "rope_scaling": {**QWEN_YARN, "type": "yarn"},
    },
    "Qwen3-8B": QWEN3,
    "Qwen3-8B with its model card's YaRN": {
        **QWEN3, "rope_scaling": {**QWEN_YARN, "rope_type": "yarn"},
    },
    "phi-2": {
        "model_type": "phi", **sizes(2560, 10240, 32, 32, 32, 51200, 2048),
        "partial_rotary_factor": 0.4, "rope_theta": 10000.0, "rope_scaling": None,
    },
    "stablelm-2-1_6b": {
        "model_type": "stablelm", **sizes(2048, 5632, 24, 32, 32, 100352, 4096),
        "partial_rotary_factor": 0.25, "rope_theta": 10000,
    },
    "gemma-7b": {
        "model_type": "gemma", **sizes(3072, 24576, 28, 16, 16, 256000, 8192), "head_dim": 256,
        "rope_theta": 10000.0, "rope_scaling": None,
    },
    "OLMo-2-1124-7B": {
        "model_type": "olmo2", **sizes(4096, 11008, 32, 32, 32, 100352, 4096),
        "rope_theta": 500000, "rope_scaling": None,
    },
    "gpt-oss-20b": GPT_OSS,
    "SmolLM3-3B": {
        "model_type": "smollm3", **sizes(2048, 11008, 36, 16, 4, 128256, 65536),
        "rope_theta": 5e6, "no_rope_layers": [1, 1, 1, 0] * 9, "sliding_window": None,
        "use_sliding_window": False,
    },
    "Olmo-3-1025-7B": {
        "model_type": "olmo3", **sizes(4096, 11008, 32, 32, 32, 100278, 65536),
        "rope_theta": 500000, "sliding_window": 4096,
        "layer_types": (["sliding_attention"] * 3 + ["full_attention"]) * 8,
        "rope_scaling": {"rope_type": "yarn", "factor": 8.0, "beta_fast": 32.0, "beta_slow": 1.0,
                         "attention_factor": 1.2079441541679836,
                         "original_max_position_embeddings": 8192},
    },
    "phi-4": {
        "model_type": "phi3", **sizes(5120, 17920, 40, 40, 10, 100352, 16384),
        "original_max_position_embeddings": 16384, "rope_theta": 250000, "rope_scaling": None,
        "sliding_window": None,
    },
    "Phi-3.5-mini-instruct": {**PHI3, **sizes(3072, 8192, 32, 32, 32, 32064, 131072)},
    "Phi-4-mini-instruct": {
        **PHI3, **sizes(3072, 8192, 32, 24, 8, 200064, 131072), "partial_rotary_factor": 0.75,
        "tie_word_embeddings": True,
    },
    "granite-3.3-8b-base": {
        "model_type": "granite", **sizes(4096, 12800, 40, 32, 8, 49152, 131072),
        "attention_multiplier": 0.0078125, "embedding_multiplier": 12.0, "logits_scaling": 16.0,
        "residual_multiplier": 0.22, "rope_theta": 1e7, "tie_word_embeddings": True,
    },
    "glm-4-9b-hf": {
        "model_type": "glm", **sizes(4096, 13696, 40, 32, 2, 151552, 8192), "head_dim": 128,
        "partial_rotary_factor": 0.5,
    },
    "c4ai-command-r-v01": {
        "model_type": "cohere", **sizes(8192, 22528, 40, 64, 64, 256000, 8192),
        "rope_theta": 8e6, "logit_scale": 0.0625,
    },
    "gemma-3-4b-pt": {
        "model_type": "gemma3", "architectures": ["Gemma3ForConditionalGeneration"],
        "vision_config": {"hidden_size": 1152}, "text_config": {
            "model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240,
            "num_hidden_layers": 34, "sliding_window": 1024,
            "rope_scaling": {"rope_type": "linear", "factor": 8.0}},
    },
    "LLaMA-2-7B-32K": {
        **LLAMA2, "max_position_embeddings": 32768,
        "rope_scaling": {"factor": 8.0, "type": "linear"},
    },
    "longchat-7b-v1.5-32k": {
        **LLAMA2, "max_sequence_length": 32768, "rope_condense_ratio": 8,
        "rope_scaling": {"factor": 8.0, "type": "linear"},
    },
    "Llama-3-8B-Instruct-Gradient-1048k": {
        "model_type": "llama", **sizes(4096, 14336, 32, 32, 8, 128256, 1048576),
        "rope_theta": 3580165449.0, "rope_scaling": None,
    },
    "Yarn-Mistral-7b-128k": {
        "model_type": "mistral", **sizes(4096, 14336, 32, 32, 8, 32000, 32768),
        "rope_theta": 10000.0, "sliding_window": 131072, "max_sequence_length": 131072,
        "rope_scaling": {**YARN, "factor": 16.0, "original_max_position_embeddings": 8192},
    },
    "Yi-34B-200K": {
        "model_type": "llama", **sizes(7168, 20480, 60, 56, 8, 64000, 200000),
        "rope_theta": 5000000.0, "rope_scaling": None,
    },
    "Qwen2.5-7B-Instruct-1M": {
        **QWEN25, "max_position_embeddings": 1010000, "rope_theta": 10000000.0,
        "rope_scaling": None, "sliding_window": 32768,
    },
    "Qwen3-30B-A3B": {
        "model_type": "qwen3_moe", **sizes(2048, 6144, 48, 32, 4, 151936, 40960),
        "head_dim": 128, "rope_theta": 1000000.0, "rope_scaling": None, "sliding_window": None,
        "use_sliding_window": False, "num_experts": 128, "num_experts_per_tok": 8,
        "moe_intermediate_size": 768,
    },
    "Mistral-Nemo-Base-2407": {
        "model_type": "mistral", **sizes(5120, 14336, 40, 32, 8, 131072, 1024000),
        "head_dim": 128, "rope_theta": 1000000.0, "sliding_window": None,
    },
    "Mixtral-8x22B-v0.1": {
        "model_type": "mixtral", **sizes(6144, 16384, 56, 48, 8, 32000, 65536),
        "rope_theta": 1000000, "sliding_window": None, "num_local_experts": 8,
        "num_experts_per_tok": 2,
    },
    "gemma-3-1b-it": {
        "model_type": "gemma3_text", **sizes(1152, 6912, 26, 4, 1, 262144, 32768),
        "head_dim": 256, "rope_theta": 1000000, "rope_scaling": None, "sliding_window": 512,
        "sliding_window_pattern": 6, "rope_local_base_freq": 10000,
    },
    "Minitron-4B-Base": {
        "model_type": "nemotron", **sizes(3072, 9216, 32, 24, 8, 256000, 4096),
        "head_dim": 128, "rope_theta": 10000, "partial_rotary_factor": 0.5,
    },
    "GLM-4-9B-0414": {
        "model_type": "glm4", **sizes(4096, 13696, 40, 32, 2, 151552, 32768), "head_dim": 128,
        "rope_theta": 10000.0, "partial_rotary_factor": 0.5,
    },
    "gpt-oss-120b": {**GPT_OSS, "num_hidden_layers": 36, "num_local_experts": 128,
                     "layer_types": ["sliding_attention", "full_attention"] * 18},
    "gemma-2-9b": {
        "model_type": "gemma2", **sizes(3584, 14336, 42, 16, 8, 256000, 8192), "head_dim": 256,
        "rope_theta": 10000.0, "sliding_window": 4096, "attn_logit_softcapping": 50.0,
    },
}  # fmt: skip
"""By name of the model. LongRoPE's factors stand for the published ones."""

WINDOWED: dict[str, dict[str, Any]] = {
    "Mistral-7B-v0.1": {
        "model_type": "mistral",
        **sizes(4096, 14336, 32, 32, 8, 32000, 32768),
        "rope_theta": 10000.0,
        "sliding_window": 4096,
    },
}
"""Models that `lce certify` reads, and to which methods cannot be applied."""

REFUSED: dict[str, dict[str, Any]] = {
    "DeepSeek-V3": {
        "model_type": "deepseek_v3", **sizes(7168, 18432, 61, 128, 128, 129280, 163840),
        "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "kv_lora_rank": 512,
        "rope_theta": 10000, "rope_scaling": {
            **YARN, "factor": 40, "mscale": 1.0, "mscale_all_dim": 1.0},
    },
    "Kimi-K2-Instruct": {
        "model_type": "kimi_k2", **sizes(7168, 18432, 61, 64, 64, 163840, 131072),
        "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "kv_lora_rank": 512,
        "rope_theta": 50000.0, "rope_scaling": {
            **YARN, "factor": 32.0, "beta_fast": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0},
    },
    "c4ai-command-r7b-12-2024": {
        "model_type": "cohere2", **sizes(4096, 14336, 32, 32, 8, 256000, 132096),
        "head_dim": 128, "rope_theta": 50000, "sliding_window": 4096, "logit_scale": 0.25,
        "sliding_window_pattern": 4,
    },
    "glm-4-9b-chat-1m": {
        "model_type": "chatglm", "hidden_size": 4096, "ffn_hidden_size": 13696,
        "num_layers": 40, "num_attention_heads": 32, "multi_query_group_num": 4,
        "kv_channels": 128, "padded_vocab_size": 151552, "seq_length": 1048576,
        "rope_ratio": 10000,
    },
    "Qwen3-Next-80B-A3B-Instruct": {
        "model_type": "qwen3_next", **sizes(2048, 5120, 48, 16, 2, 151936, 262144),
        "head_dim": 256, "rope_theta": 10000000, "partial_rotary_factor": 0.25,
        "full_attention_interval": 4,
    },
    "Qwen3.5-27B": {
        "model_type": "qwen3_5", "vision_config": {"hidden_size": 1152}, "text_config": {
            "model_type": "qwen3_5_text", **sizes(5120, 17408, 64, 24, 4, 248320, 262144),
            "head_dim": 256, "rope_parameters": {
                "mrope_section": [11, 11, 10], "rope_type": "default", "rope_theta": 10000000,
                "partial_rotary_factor": 0.25},
            "layer_types": (["linear_attention"] * 3 + ["full_attention"]) * 16},
    },
    "Llama-4-Scout-17B-16E-Instruct": {
        "model_type": "llama4", "vision_config": {"hidden_size": 1408}, "text_config": {
            "model_type": "llama4_text", **sizes(5120, 8192, 48, 40, 8, 202048, 10485760),
            "rope_scaling": {**LLAMA3, "factor": 16.0, "high_freq_factor": 1.0},
            "rope_theta": 500000.0, "attention_chunk_size": 8192},
    },
    "Ministral-3-3B-Base-2512": {
        "model_type": "mistral3", "vision_config": {"hidden_size": 1024}, "text_config": {
            "model_type": "ministral3", **sizes(3072, 9216, 26, 32, 8, 131072, 262144),
            "rope_parameters": {
                "rope_type": "yarn", "factor": 16.0, "original_max_position_embeddings": 16384,
                "rope_theta": 1000000.0, "llama_4_scaling_beta": 0.1}},
    },
}  # fmt: skip
"""Models that `lce certify` refuses."""

CONTEXT_8K = {"max_position_embeddings": 8192}
YARN_2 = {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 4096}
LONG = {"rope_type": "longrope", "short_factor": [1.5] * 64, "long_factor": [2.0] * 64,
        "original_max_position_embeddings": 4096}  # fmt: skip
ODD: dict[str, dict[str, Any]] = {
    "theta in rope_parameters alone": {
        **LLAMA2, "rope_parameters": {"rope_type": "default", "rope_theta": 5e5},
    },
    "dynamic": {**LLAMA2, "rope_scaling": {"rope_type": "dynamic", "factor": 4.0}},
    "proportional": {
        **LLAMA2, "rope_parameters": {
            "rope_type": "proportional", "rope_theta": 1e4, "partial_rotary_factor": 0.5},
    },
    "linear by a whole number": {**LLAMA2, "rope_scaling": {"rope_type": "linear", "factor": 4}},
    "a share that transformers ignores": {**LLAMA2, "partial_rotary_factor": 0.5},
    "attention factor": {
        **LLAMA2, **CONTEXT_8K, "rope_scaling": {**YARN_2, "attention_factor": 1.5},
    },
    "betas": {**LLAMA2, **CONTEXT_8K, "rope_scaling": {**YARN_2, "beta_fast": 16.0}},
    "mscale alone": {**LLAMA2, **CONTEXT_8K, "rope_scaling": {**YARN_2, "mscale": 2.0}},
    "both mscales": {
        **LLAMA2, **CONTEXT_8K,
        "rope_scaling": {**YARN_2, "mscale": 2.0, "mscale_all_dim": 1.0},
    },
    "yarn without original context": {
        **LLAMA2, "rope_scaling": {"rope_type": "yarn", "factor": 2.0},
    },
    "longrope": {**LLAMA2, **CONTEXT_8K, "rope_scaling": LONG},
    "longrope with a factor": {
        **LLAMA2, **CONTEXT_8K, "rope_scaling": {
            **LONG, "original_max_position_embeddings": 8192, "attention_factor": 1.2,
            "short_mscale": 1.2, "long_mscale": 1.2},
    },
    "llama3 on Qwen": {**QWEN25, "rope_scaling": LLAMA3},
    "linear on Mixtral": {
        "model_type": "mixtral", **sizes(4096, 14336, 32, 32, 8, 32000, 32768),
        "rope_theta": 1e6, "rope_scaling": {"rope_type": "linear", "factor": 2.0},
        "sliding_window": None, "num_local_experts": 8, "num_experts_per_tok": 2,
    },
    "phi3 with rope_type": {
        **PHI3, **sizes(3072, 8192, 32, 32, 32, 32064, 131072),
        "rope_theta": 10000.0, "rope_scaling": {
            "rope_type": "longrope", "short_factor": [1.0] * 48, "long_factor": [2.0] * 48},
    },
    "layers without rotation": {
        "model_type": "smollm3", **sizes(2048, 11008, 36, 16, 4, 128256, 65536),
        "rope_theta": 5e6, "no_rope_layers": [1, 0] * 18,
    },
    "Gemma 3 of transformers 5": {
        "model_type": "gemma3_text", **sizes(640, 2048, 18, 4, 1, 262144, 32768), "head_dim": 256,
        "sliding_window": 512, "layer_types": (["sliding_attention"] * 5 + ["full_attention"]) * 3,
        "rope_parameters": {
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
            "sliding_attention": {"rope_type": "default", "rope_theta": 2e4}},
    },
}  # fmt: skip
"""Settings that some runtime reads in its own way."""
