"""Passkey and needle prompts and scores, settings that are refused, rows of data files."""

import hashlib
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tokenizers import processors
from transformers import PreTrainedTokenizerFast

from lce_core.benchmarks import CellRequest
from lce_core.benchmarks import needle as needle_text
from lce_core.benchmarks import passkey as passkey_module
from lce_core.benchmarks._data import read_rows
from lce_core.benchmarks._prompted.retrieval import encode
from lce_core.contracts.benchmark_cases import Streams
from lce_core.data.tokenised import token_ids
from lce_core.errors import DataError, SpecError, UnavailableError
from lce_core.models import MODELS
from tests.support.byte_level import byte_level
from tests.support.cells import TOY
from tests.support.cells import benchmark as _benchmark
from tests.support.cells import request as _request

PHI = MODELS.parse({"name": "phi2"}, "test")
SENTENCES = "A ship left the port. Rain fell on the hills. Nobody knew why the lamp was lit. "
LCEG = needle_text.FACTS[0]


@pytest.fixture(scope="module")
def bpe() -> PreTrainedTokenizerFast:
    text = SENTENCES + passkey_module.GARBAGE + LCEG.needle + LCEG.question
    return byte_level([text] * 4, 380)


@pytest.fixture
def essays(tmp_path) -> Path:
    for name in ("b.txt", "a.txt"):
        (tmp_path / name).write_text(
            f"This is essay {name[0]}. {SENTENCES * 3}\n", encoding="utf-8"
        )
    return tmp_path


def framed(template: str, end: str) -> PreTrainedTokenizerFast:
    """A tokenizer of bytes with the special tokens <s> (256) and </s> (257) around a text."""
    made = byte_level([SENTENCES], 256)
    made.add_special_tokens({"bos_token": "<s>", "eos_token": end})
    ids = [(name, made.convert_tokens_to_ids(name)) for name in {"<s>", end}]
    made.backend_tokenizer.post_processor = processors.TemplateProcessing(
        template, special_tokens=ids
    )
    return made


def test_names_of_special_tokens_are_characters_in_prompts_as_in_training_text():
    made = framed("<s> $A", "</s>")
    request = _request(_benchmark("passkey"), 100, tokenizer=made)
    text = "a</s>b<s>"
    begin = made.bos_token_id
    assert encode(request, text) == [begin, *token_ids(made, [text])[0]]
    assert encode(request, text, names=True)[2] == made.eos_token_id


@pytest.mark.parametrize(
    ("template", "end", "before"),
    [
        ("<s> $A </s>", "</s>", 1),
        ("$A </s>", "</s>", 0),
        ("<s> $A", "<s>", 1),  # its begin token is its end token
        ("<s> $A <s>", "<s>", 1),
    ],
)
def test_no_prompt_ends_with_an_appended_end_of_text(template, end, before):
    made = framed(template, end)
    request = _request(_benchmark("passkey"), 100, tokenizer=made)
    for text in ("", "Who?"):
        plain = token_ids(made, [text])[0]
        assert encode(request, text) == [made.bos_token_id] * before + plain
        assert encode(request, text, special_tokens=False) == plain


@pytest.mark.parametrize(
    ("name", "task", "keys", "queries"),
    [
        ("passkey", "single", 4, 1),
        ("needle", "single", 1, 1),
        ("ruler", "niah_single_2", 1, 1),
        ("ruler", "niah_multikey_2", 8, 1),
        ("ruler", "niah_multiquery", 4, 4),
    ],
)
def test_key_prompts_hold_their_keys_once_and_the_query_last(name, task, keys, queries):
    benchmark = _benchmark(name, profile="tiny")
    request = _request(benchmark, 100, task=task)
    vocabulary, names = TOY.keys, request.tokenizer
    prompts = benchmark.prompts(request)
    for first in range(0, len(prompts), queries):
        group = prompts[first : first + queries]
        assert len({prompt.ids[:-1].tobytes() for prompt in group}) == 1
        assert len({int(prompt.ids[-1]) for prompt in group}) == queries
    noise = any("The grass is green" in names.decode(prompt.ids) for prompt in prompts)
    assert noise == (task == "niah_multikey_2")
    for prompt in prompts:
        assert len(prompt.ids) == 99
        hidden = [int(token) for token in prompt.ids[:-1] if token >= vocabulary.first_key]
        families = [(token - vocabulary.first_key) // vocabulary.members for token in hidden]
        assert len(set(families)) == len(hidden) == keys
        asked = int(prompt.ids[-1]) - vocabulary.first_query
        answer = hidden[families.index(asked)]
        assert prompt.reference == names.convert_ids_to_tokens(answer)
        place = prompt.ids.tolist().index(answer) / 97 * 100
        assert abs(place - prompt.depth) < 5
    depths = [prompt.depth for prompt in prompts]
    assert min(depths) < 5
    assert max(depths) > 95


def _digest(prompts: list[Any]) -> str:
    digest = hashlib.sha256()
    for prompt in prompts:
        digest.update(prompt.ids.astype("<i8").tobytes() + prompt.reference.encode())
    return digest.hexdigest()[:16]


# Pinned: a change of these prompts is a change of the benchmark and raises its VERSION.
@pytest.mark.parametrize(
    ("name", "pinned"), [("passkey", "62d86874f28e1bd9"), ("needle", "5d6ee8b7fb8a2396")]
)
def test_prompts_are_those_that_were_pinned_whatever_the_method(name, pinned):
    benchmark = _benchmark(name, profile="tiny")
    for method in ("none", "yarn"):
        assert _digest(benchmark.prompts(_request(benchmark, 128, method=method))) == pinned


@pytest.mark.parametrize("profile", ["faithful", "clean"])
def test_passkey_prompts_fill_the_length_and_hold_the_key(profile, bpe):
    benchmark = _benchmark("passkey", profile=profile, num_samples=8)
    request = _request(benchmark, 700, tokenizer=bpe)
    for prompt in benchmark.prompts(request):
        text = bpe.decode(prompt.ids, skip_special_tokens=True)
        assert text.count(f"The pass key is {prompt.reference}.") == 1
        assert text.endswith("The pass key is")
        assert len(prompt.ids) <= 690
        assert len(prompt.ids) >= (600 if profile == "faithful" else 680)
        before, after = (part.strip() for part in text.split("The pass key is", 2)[:2])
        assert before.startswith("There is an important info")
        assert prompt.reference in after


@pytest.mark.parametrize(
    ("name", "short", "parameters"), [("passkey", 60, {}), ("needle", 90, {"needles": 1})]
)
def test_a_length_without_room_names_the_least(name, short, parameters, bpe, essays):
    benchmark: Any = _benchmark(name, **parameters)
    request = _request(benchmark, short, tokenizer=bpe, data_folders={"essays": essays})
    with pytest.raises(UnavailableError, match=f"got {short} tokens") as error:
        benchmark.evaluate(request)
    minimum = int(str(error.value).split("at least ")[1].split()[0])
    assert benchmark.prompts(replace(request, eval_length=minimum))
    with pytest.raises(UnavailableError):
        benchmark.evaluate(replace(request, eval_length=minimum - 1))


def _needle_prompts(profile: str, request: CellRequest, **parameters: Any) -> list[Any]:
    return _benchmark("needle", profile=profile, **parameters).prompts(request)


def test_the_bos_leak_marks_haystack_and_needle_in_faithful_prompts_only(bpe, essays):
    request = _request(_benchmark("needle"), 900, tokenizer=bpe, data_folders={"essays": essays})
    for profile, leak, number in (
        ("faithful", None, 4),
        ("faithful", False, 1),
        ("clean", None, 1),
        ("clean", True, 4),
    ):
        for prompt in _needle_prompts(profile, request, trials=1, bos_leak=leak):
            assert (prompt.ids == bpe.bos_token_id).sum() == number


def test_needle_haystacks_repeat_essays_in_the_order_of_their_names(bpe, essays):
    request = _request(_benchmark("needle"), 1500, tokenizer=bpe, data_folders={"essays": essays})
    text = bpe.decode(_needle_prompts("faithful", request)[-1].ids, skip_special_tokens=True)
    assert re.findall(r"This is essay (.)\.", text)[:3] == ["a", "b", "a"]


def test_equal_needle_prompts_are_one_sample(bpe, essays):
    request = _request(_benchmark("needle"), 900, tokenizer=bpe, data_folders={"essays": essays})
    clusters: dict[bytes, set[str]] = {}
    for seed in (0, 1):
        for prompt in _needle_prompts("faithful", replace(request, seed=seed), trials=2):
            clusters.setdefault(prompt.ids.tobytes(), set()).add(prompt.cluster)
    assert len(clusters) == len(set.union(*clusters.values())) == len(needle_text.DEPTHS)


@pytest.mark.parametrize(("needles", "cycle"), [(None, 5), (1, 1), (2, 2)])
def test_clean_needle_trials_hide_and_ask_their_own_facts(bpe, needles, cycle):
    text = bpe.encode(SENTENCES * 200, add_special_tokens=False)
    held_out = Streams({"prose": np.array(text, dtype=np.uint32)})
    request = _request(_benchmark("needle"), 900, tokenizer=bpe, held_out=held_out)
    parameters = {"haystack": "held_out", "trials": 6, "needles": needles}
    prompts = _needle_prompts("clean", request, **parameters)
    for index, prompt in enumerate(prompts):
        fact = needle_text.FACTS[index % 6 % cycle]
        shown = bpe.decode(prompt.ids, skip_special_tokens=True)
        assert prompt.reference == fact.answer
        assert [shown.count(other.needle) for other in needle_text.FACTS] == [
            int(other is fact) for other in needle_text.FACTS
        ]
        assert shown.endswith(f"{fact.question}\nAnswer:")
    if cycle == 1:  # Trials differ in their haystack and share it over depths.
        texts = [bpe.decode(p.ids).split("<book> ")[1].replace(LCEG.needle, "") for p in prompts]
        starts = [text[:200] for text in texts]
        assert len(set(starts[:6])) == 6
        assert starts[6:12] == starts[12:18]
    names = [prompt.cluster for prompt in prompts]
    assert names[:6] == names[54:]
    assert len({*names}) == 6, "the depths of a trial are no independent samples"
    others = _needle_prompts("clean", replace(request, seed=1), **parameters)
    assert not {*names} & {prompt.cluster for prompt in others}
    benchmark = _benchmark("needle", profile="clean", **parameters)
    gold = [prompt.reference for prompt in prompts]
    for answers, right in ((gold, 1.0), (gold[1:] + gold[:1], 0.0)):
        samples = benchmark.scored("single", prompts, answers)
        alike = cycle == 1  # then every answer is right for all
        assert {sample.score for sample in samples[:5]} == {1.0 if alike else right}


def test_needle_answers_get_lcegs_overlap_and_the_exact_score():
    prompt = needle_text.Prompt(np.arange(3), LCEG.answer, 0.0)
    gold = f" {LCEG.answer}"
    for profile, best in (("faithful", 11 / 12), ("clean", 1.0)):
        benchmark: Any = _benchmark("needle", profile=profile, trials=2, needles=1)
        scored = benchmark.scored("single", [prompt] * 2, [gold, gold])
        assert {score.metric: score.value for score in benchmark.scores(scored)} == pytest.approx(
            {"accuracy": best, "word_overlap": 11 / 12, "rouge_1": 24 / 33, "exact_match": 1.0}
        )
        scored = benchmark.scored("single", [prompt] * 2, ["", "visit some bridge"])
        assert {score.value for score in benchmark.scores(scored)} == {0.0}


def test_a_leak_without_a_token_to_leak_is_unavailable(essays):
    benchmark = _benchmark("needle", profile="faithful", bos_leak=True)
    folders = {"essays": essays}
    with pytest.raises(UnavailableError, match="bos_leak: false"):
        benchmark.evaluate(_request(benchmark, 900, data_folders=folders))


def test_essays_that_are_absent_empty_or_unreadable_are_named(tmp_path):
    benchmark = _benchmark("needle")
    request = _request(benchmark, 900, data_folders={"essays": tmp_path})
    with pytest.raises(UnavailableError, match="'essays'"):
        benchmark.evaluate(replace(request, data_folders={}))
    with pytest.raises(UnavailableError, match=r"got no \*\.txt"):
        benchmark.evaluate(request)
    (tmp_path / "x.txt").write_bytes(b"caf\xe9")
    with pytest.raises(DataError, match=r"x\.txt"):
        benchmark.evaluate(request)


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("long_eval", {"profile": "tiny", "cases": "published"}, "tiny with cases: published"),
        ("long_eval", {"cases": "published", "num_samples": 5}, "50 prompts each"),
        ("longbench", {"profile": "tiny"}, "longbench offers: faithful, clean, fast"),
        ("needle", {"profile": "tiny", "bos_leak": True}, "tiny with bos_leak"),
        ("perplexity", {"data_sets": ["pg18"]}, "'pg19', 'proof_pile' or 'govreport'"),
        ("perplexity_documents", {"truncate": True}, "longest length of the study"),
        ("ruler", {"profile": "tiny", "haystack": "held_out"}, "omit haystack, or choose"),
    ],
)
def test_settings_without_meaning_are_refused(name, parameters, message):
    with pytest.raises(SpecError, match=message):
        _benchmark(name, **parameters)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", '{"text": "x"}\n{"other": 1}\n', r"a\.jsonl: row 2: got no column 'text'"),
        ("a.jsonl", '{"text": "x"}\n[1]\n', r"row 2: got list; expected an object"),
        ("a.parquet", "no parquet", r"a\.parquet: .*get the file again"),
        ("a.json", "[" * 100_000, r"a\.json: .*get the file again"),
    ],
)
def test_rows_that_are_damaged_or_lack_a_column_are_named(tmp_path, name, content, message):
    (tmp_path / name).write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match=message):
        list(read_rows(tmp_path / name, ("text",)))


def test_rows_are_read_alike_from_all_formats(tmp_path):
    rows = [{"text": "a\u2028b", "label": 1}, {"text": "c", "label": 2}]
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    (tmp_path / "a.jsonl").write_text(lines, encoding="utf-8")
    (tmp_path / "a.json").write_text(json.dumps(rows), encoding="utf-8")
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    (tmp_path / "b.jsonl").write_text(lines, encoding="utf-8-sig")
    for name in ("a.jsonl", "a.json", "a.parquet", "b.jsonl"):
        assert list(read_rows(tmp_path / name, ("text", "label"))) == rows


@pytest.mark.parametrize("name", ["passkey", "needle"])
def test_wordings_hide_the_same_keys_at_the_same_depths(name):
    one, three = (_benchmark(name, profile="tiny", wordings=n) for n in (1, 3))
    assert one.tasks() == ("single",)
    assert three.tasks() == ("single", "wording_1", "wording_2")
    assert "wordings" not in one.identity()
    requests = [replace(_request(three, 100), task=task) for task in three.tasks()]
    found = [three.prompts(request) for request in requests]
    published = one.prompts(_request(one, 100))
    assert [p.ids.tolist() for p in found[0]] == [p.ids.tolist() for p in published]
    frames = ("", ""), ("\n", "\n"), (" Key: ", " Key? ")
    for request, prompts, (before_key, before_query) in zip(requests, found, frames, strict=True):
        assert [p.depth for p in prompts] == [p.depth for p in published]
        assert [p.reference for p in prompts] == [p.reference for p in published]
        for prompt in prompts:
            assert len(prompt.ids) == 99
            text = request.tokenizer.decode(prompt.ids)
            assert text.count(f"{before_key}{prompt.reference}") == 1
            family = prompt.reference[5]
            assert text.endswith(f"{before_query}<query-{family}>")


def test_key_prompts_need_key_tokens_and_room_for_their_words():
    benchmark = _benchmark("passkey", profile="tiny", wordings=3)
    assert "key tokens" in str(benchmark.unavailable(PHI, "single", 4096))
    assert benchmark.evaluate(_request(benchmark, 22)).samples
    # 16 tokens of text, 4 keys, query and answer; 4 x 6 + 6 characters of words
    for task, least in (("single", 22), ("wording_1", 27), ("wording_2", 52)):
        assert benchmark.unavailable(TOY, task, least) is None
        assert f"at least {least} tokens" in str(benchmark.unavailable(TOY, task, least - 1))


@pytest.mark.parametrize("task", ["wording_1", "wording_2"])
def test_each_wording_in_words_says_the_key_or_needle_and_fits(task, bpe):
    benchmark: Any = _benchmark("passkey", num_samples=4, wordings=3)
    request = _request(benchmark, 700, tokenizer=bpe)
    prompts = benchmark.prompts(replace(request, task=task))
    for prompt, published in zip(prompts, benchmark.prompts(request), strict=True):
        assert prompt.reference == published.reference
        assert prompt.reference in bpe.decode(prompt.ids, skip_special_tokens=True)
        assert 660 <= len(prompt.ids) <= 690

    parameters = {"haystack": "held_out", "trials": 1, "needles": 1, "wordings": 3}
    for prompt in _needle_prompts("clean", replace(request, task=task), **parameters):
        text = bpe.decode(prompt.ids, skip_special_tokens=True)
        assert text.count(LCEG.answer) == text.count(LCEG.question) == 1
        assert "<book>" not in text
        assert len(prompt.ids) <= 650


def test_clean_passkeys_have_five_digits():
    passkey = _benchmark("passkey", profile="clean", num_samples=100)
    keys = [int(prompt.reference) for prompt in passkey.prompts(_request(passkey, 700))]
    assert all(10_000 <= key < 100_000 for key in keys)
    assert len(set(keys)) == 100
    assert max(keys) > 90_000
