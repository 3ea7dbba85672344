"""Small byte-level tokenizers, as Llama's in kind: <s> is put first and read in text."""

from collections.abc import Iterable, Sequence

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast


def byte_level(
    texts: Iterable[str],
    vocab_size: int,
    *,
    across_words: bool = False,
    special: Sequence[str] = ("<s>",),
) -> PreTrainedTokenizerFast:
    """Train a tokenizer with merges; words are split as GPT-2's unless merges cross them.

    Only with <s> among the special tokens has every text a beginning, and with </s> an end.
    """
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(
        add_prefix_space=False, use_regex=not across_words
    )
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[*special],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(texts, trainer)
    if "<s>" in special:
        begin = [("<s>", special.index("<s>"))]
        backend.post_processor = processors.TemplateProcessing("<s> $A", special_tokens=begin)
    tokens = {"bos_token": "<s>", "eos_token": "</s>"}
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        clean_up_tokenization_spaces=False,
        **{name: token for name, token in tokens.items() if token in special},
    )
