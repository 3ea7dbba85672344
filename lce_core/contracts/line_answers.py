"""Toy answers that contain line breaks, for checks of early stopping."""

from __future__ import annotations

import json
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from lce_core.extension.extended_model import ExtendedModel
from lce_core.models.toy_llama import ToyLlama, byte_tokenizer

FIRST_WORD = 256


def line_tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer whose tokens are single bytes and 136 words with line breaks.

    The break is inside a third of the words, at the end of a third, after # in a third.
    """
    content = json.loads(byte_tokenizer(ToyLlama.keys).backend_tokenizer.to_str())
    backend = Tokenizer(models.BPE(vocab=content["model"]["vocab"], merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    ends = ("\nx", "\n", "#\nx\n")
    backend.add_tokens([f"w{number}{ends[number % 3]}" for number in range(136)])
    return PreTrainedTokenizerFast(tokenizer_object=backend, clean_up_tokenization_spaces=False)


def make_words_likely(model: ExtendedModel) -> None:
    """Scale the embeddings of the words of `line_tokenizer`, which occur in no prompt."""
    embeddings: Any = model.model.get_input_embeddings()
    embeddings.weight.data[FIRST_WORD:] *= 3
