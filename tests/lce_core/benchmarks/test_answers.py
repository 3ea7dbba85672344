"""What benchmarks say, without data, of the answers and the text that their cells take."""

import pytest

from lce_core.data.sequences import Answers
from tests.support.cells import benchmark


@pytest.mark.parametrize(
    ("name", "parameters", "task", "number", "longest"),
    [
        # RULER: 500 prompts, 128 tokens for needles.
        ("ruler", {"profile": "faithful"}, "niah_single_1", 500, 128),
        # LongBench: 200 rows of qasper with 128 tokens.
        ("longbench", {}, "qasper", 200, 128),
        ("passkey", {"profile": "tiny"}, "single", 120, 1),
        ("many_shot", {"profile": "faithful"}, "shots_100", 200, None),
    ],
)
def test_answers_are_as_many_and_as_long_as_the_protocol_says(
    name, parameters, task, number, longest
):
    found = benchmark(name, **parameters).answers(task)
    assert found == Answers(number, found.longest if longest is None else longest)


def test_a_domain_has_the_studys_text_and_a_data_set_its_own():
    asked = benchmark("perplexity", profile="faithful", domains=["code"], data_sets=["pg19"])
    assert asked.text_tokens("code", 4096) == 4096
    # Ten books of PG19 are about 1.05 million tokens of Llama's.
    assert asked.text_tokens("pg19", 4096) == pytest.approx(1_050_000, rel=0.05)
    assert benchmark("passkey").text_tokens("single", 4096) == 4096


def test_documents_that_must_be_long_are_so_in_a_price():
    asked = benchmark("perplexity_documents", profile="faithful", data_sets=["proof_pile"])
    # YaRN: the first 10 of at least 131,072 tokens, one window of each.
    assert asked.num_tokens("proof_pile", 65536, 0) == 10 * 65536
    assert asked.num_tokens("proof_pile", 131072, 0) == 10 * 131072
