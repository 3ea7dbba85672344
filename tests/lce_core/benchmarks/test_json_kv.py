"""json_kv: prompts read back as JSON, and HELMET's normalised substring match written out."""

import json

import pytest

from lce_core.contracts.benchmark_cases import words_tokenizer
from tests.support.cells import benchmark, request

KEY = "Key: "
VALUE = "Corresponding value:"


@pytest.mark.parametrize("length", [900, 2000])
def test_the_dictionary_holds_the_asked_pair_at_its_depth_and_both_examples(length):
    asked = benchmark("json_kv", num_samples=6)
    tokenizer = words_tokenizer()
    depths = []
    for prompt in asked.build(request(asked, length, tokenizer=tokenizer)):
        text = tokenizer.decode(prompt.ids, skip_special_tokens=True)
        head, instruction, rest = text.partition("\n\nExtract the value")
        pairs = json.loads(head.removeprefix("JSON data:\n"))
        assert instruction
        *solved, last = rest.split("\n\n")[1:]
        assert len(solved) == 2
        for example in solved:
            key, value = example.removeprefix(KEY).split(f"\n{VALUE} ")
            assert pairs[key] == value
        key = last.removeprefix(KEY).removesuffix(f"\n{VALUE}")
        assert pairs[key] == prompt.reference
        place = list(pairs).index(key)
        assert place == pytest.approx(prompt.depth / 100 * (len(pairs) - 1), abs=1)
        assert key not in [example.split()[1] for example in solved]
        depths.append(prompt.depth)
        assert len(prompt.ids) + 100 <= length < len(prompt.ids) + 100 + 120
    assert depths == [0, 20, 40, 60, 80, 100]
