"""Needle prompts against LCEG's procedure written anew, and ROUGE-1 against counts by hand.

The tokenizer is Llama's in kind: a blank before every text, <s> put first and read in text.
"""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from lce_core.benchmarks.needle import FACTS
from lce_core.evaluation.metrics import rouge_1
from tests.support.cells import benchmark, request

ESSAY = "It rained on the hills near St. Mary. A lamp was lit by nobody . Why? The ship left port. "
NEEDLE = (
    "\nThe best thing to do in San Francisco is eat a sandwich and sit in Dolores Park on a sunny"
    " day.\n"
)
QUESTION = "What is the best thing to do in San Francisco?"
DEPTHS = (0, 11, 22, 33, 44, 56, 67, 78, 89, 100)


@pytest.fixture(scope="module")
def llama_like() -> PreTrainedTokenizerFast:
    backend = Tokenizer(models.BPE(unk_token="<unk>"))
    backend.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=["<unk>", "<s>"], show_progress=False
    )
    words = (
        f"{ESSAY} {NEEDLE} {QUESTION} <|im_start|> This is a very long story book: <book> </book>"
    )
    backend.train_from_iterator(words.split(" "), trainer)
    backend.post_processor = processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 1)])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<s>", clean_up_tokenization_spaces=False
    )


@pytest.fixture
def essays(tmp_path) -> dict[str, Path]:
    (tmp_path / "a.txt").write_text(ESSAY * 60, encoding="utf-8")
    return {"essays": tmp_path}


def prompts(length: int, tokenizer: Any, folders: dict[str, Path], **parameters: Any) -> list[Any]:
    asked: Any = benchmark("needle", **{"profile": "faithful", **parameters})
    found = asked.prompts(request(asked, length, tokenizer=tokenizer, data_folders=folders))
    return [prompt.ids.tolist() for prompt in found]


def as_lceg(length: int, depth: int, tokenizer: Any, text: str) -> list[int]:
    """The procedure of the script, from its description: every text is tokenised with its BOS."""
    story = tokenizer.encode(tokenizer.decode(tokenizer.encode(text)[:length]))
    needle = tokenizer.encode(NEEDLE)
    story = story[: length - 200 - len(needle)]
    stops = {tokenizer.encode("a.")[-1], tokenizer.encode("a .")[-1]}
    ends = [0, *(place + 1 for place, token in enumerate(story) if token in stops)]
    wanted = int(len(story) * (depth / 100))
    place = len(story) if depth == 100 else max(end for end in ends if end <= wanted)
    context = tokenizer.decode([*story[:place], *needle, *story[place:]])
    return tokenizer.encode(
        f"<|im_start|> This is a very long story book: <book> {context} </book>.\n"
        f" Based on the content of the book, Question: {QUESTION}\nAnswer:"
    )


@pytest.mark.parametrize("length", [700, 1325])
def test_leaking_prompts_are_those_of_lcegs_procedure_token_by_token(length, llama_like, essays):
    assert llama_like.encode("a.")[-1] != llama_like.encode("a .")[-1]
    found = prompts(length, llama_like, essays)
    expected = [as_lceg(length, depth, llama_like, ESSAY * 60) for depth in DEPTHS]
    assert len(expected[0]) + 50 <= length, "or the prompt is shrunk, which LCEG does not do"
    assert found == expected
    backend = Tokenizer.from_str(llama_like.backend_tokenizer.to_str())
    backend.post_processor = processors.TemplateProcessing("$A")
    bare = PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<s>", clean_up_tokenization_spaces=False
    )
    found = prompts(length, bare, essays)
    assert found == [as_lceg(length, depth, bare, ESSAY * 60) for depth in DEPTHS]
    assert all(bare.bos_token_id not in ids for ids in found)


@pytest.mark.parametrize(
    ("answer", "common", "words"),
    [
        ("eat a sandwich and sit in Dolores Park on a sunny day.", 12, 12),
        ("The best thing to do in San Francisco is to eat a sandwich.", 12, 13),
        ("eating SANDWICHES, sitting in parks", 5, 5),  # stems
        ("on on on", 1, 3),  # the needle has one
        ("a a a", 2, 3),  # the needle has two
        ("eat2 a-sandwich", 2, 3),  # signs end words, digits do not
        ("", 0, 0),
    ],
)
def test_rouge_counts_words_as_counted_by_hand(answer, common, words):
    assert rouge_1(answer, FACTS[0].needle) == pytest.approx(2 * common / (words + 21))
    assert FACTS[0].needle == NEEDLE


@given(*[st.lists(st.sampled_from(["on", "the", "day", "a7", "it"]), max_size=12)] * 2)
def test_rouge_of_words_without_endings_is_the_overlap_of_two_bags(answer, reference):
    common = (Counter(answer) & Counter(reference)).total()
    expected = 2 * common / (len(answer) + len(reference)) if common else 0.0
    assert rouge_1(" ".join(answer), " ".join(reference)) == pytest.approx(expected)
