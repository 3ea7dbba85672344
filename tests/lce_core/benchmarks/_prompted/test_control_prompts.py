"""Control prompts are the prompt without its context, and what they say of a model.

Strategy: texts are compared with the lines of the real prompt. A toy model gets weights with which
it answers from the question alone, so that every score must equal both controls; and prompts get
the faults that the checks count. A small study shows the numbers in a real catalog.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from catalog.build import build_catalog
from catalog.queries import run_query
from lce.views.plan_view import prompt_lines
from lce.views.planning import Inspection, checked_prompts
from lce_core.contracts.benchmark_cases import Case, held_out, request_for, words_tokenizer
from lce_core.extension.extending import extend
from lce_core.methods import METHODS
from tests.support.architectures import save
from tests.support.cells import TOY, benchmark, request, values
from tests.support.data.fixture_data import fixture_folders
from tests.support.small_study import Small, written_text


def model_that_reads_only_the_question() -> Any:
    """The toy model, without layers, answers a query token with the first key of its family."""
    model: Any = TOY.initialise(2).eval()
    for layer in model.model.layers:
        layer.self_attn.o_proj.weight.data.zero_()
        layer.mlp.down_proj.weight.data.zero_()
    keys, head = TOY.keys, torch.zeros_like(model.lm_head.weight)
    embedded = torch.zeros_like(model.model.embed_tokens.weight)
    for family in range(keys.families):
        embedded[keys.first_query + family, family] = 1.0
        head[keys.first_key + family * keys.members, family] = 1.0
    model.lm_head.weight = torch.nn.Parameter(head)
    model.model.embed_tokens.weight = torch.nn.Parameter(embedded)
    return extend(model, TOY, METHODS.load("none")(), target=512)


@pytest.mark.parametrize("name", ["passkey", "multi_key", "multi_turn", "ruler"])
def test_a_model_that_reads_only_the_question_scores_the_same_without_the_context(name):
    asked = benchmark(name, profile="tiny", controls=True)
    cell = request(asked, 256, model=model_that_reads_only_the_question())
    cell = replace(cell, task=asked.tasks()[-1])
    result = asked.evaluate(cell)
    for sample in result.samples:
        assert sample.no_context == sample.local_context == sample.score
    # Keys are drawn from eight members or more, and the model knows one of them.
    found = values(result)
    assert 0 < found["accuracy"] < 0.5
    assert found["no_context"] == found["local_context"] == found["accuracy"]
    plain = benchmark(name, profile="tiny").evaluate(cell)
    assert plain.scores == tuple(one for one in result.scores if one.metric in values(plain))
    assert plain.prompts_sha256 == result.prompts_sha256


def passkeys() -> tuple[Any, Any]:
    asked = benchmark("passkey", profile="fast", num_samples=5)
    cell = request(asked, 700, tokenizer=words_tokenizer(), held_out=held_out(in_words=True))
    return cell, [*asked.prompts(cell)]


def test_control_prompts_are_the_lines_of_the_prompt_without_the_filler():
    cell, prompts = passkeys()
    for prompt in prompts:
        instruction, _, fact, _, question = cell.tokenizer.decode(prompt.ids).split("\n")
        bare, local = map(cell.tokenizer.decode, prompt.controls)
        assert bare == f"{instruction}\n{question}"
        assert local == f"{instruction}\n{fact}\n{question}"


def test_checks_count_the_prompts_with_a_fault():
    cell, prompts = passkeys()
    sound = dict.fromkeys(
        (
            "num_cut",
            "num_without_begin",
            "num_begin_inside",
            "num_special_names",
            "num_answer_elsewhere",
        ),
        0,
    ) | {"begin_tokens_min": 1, "begin_tokens_max": 1}
    asked = benchmark("passkey")
    assert asked.checks(cell, prompts) == sound

    def spoilt(place: int, text: str) -> None:
        words = cell.tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True)
        ids = np.concatenate([prompts[place].ids, words])
        prompts[place] = replace(prompts[place], ids=ids)

    prompts[0] = replace(prompts[0], ids=np.concatenate([[0], prompts[0].ids]), is_cut=True)
    spoilt(1, f" {prompts[1].reference}")
    spoilt(2, " <s>")
    prompts[3] = replace(prompts[3], ids=prompts[3].ids[1:])
    middle = np.insert(prompts[4].ids, 9, cell.tokenizer.bos_token_id)
    prompts[4] = replace(prompts[4], ids=middle)
    assert asked.checks(cell, prompts) == sound | {
        "num_cut": 1, "num_begin_inside": 1, "num_special_names": 1, "num_answer_elsewhere": 1,
        "begin_tokens_min": 0, "begin_tokens_max": 2,
    }  # fmt: skip


def test_a_benchmark_whose_answer_has_no_neighbourhood_has_one_control():
    asked = benchmark("many_shot", profile="tiny", controls=True, shots=[1], num_questions=2)
    found = asked.evaluate(request_for(Case(type(asked), {}, "tiny", lambda _: {}), "shots_1"))
    assert {sample.local_context for sample in found.samples} == {None}
    assert {"no_context"} == {"no_context", "local_context"} & {*values(found)}


def test_prompts_around_held_out_text_are_built_before_a_run(tmp_path):
    (tmp_path / "text").mkdir()
    data = {"text": written_text(tmp_path / "text")}
    model = save("llama", tmp_path / "model", max_position_embeddings=512)
    asked = {"name": "ruler", "haystack": "held_out", "tasks": ["niah_single_2"], "num_samples": 2}
    small = Small(model, data, tmp_path / "home", benchmarks=[{**asked, "lengths": [512]}],
                  methods=["none"])  # fmt: skip
    small.run("held_out")
    (row,) = checked_prompts(Inspection(small.plan, {}, small.store, small.execution))
    assert row.get("num_prompts") == 2, row


@pytest.mark.slow
def test_a_study_prices_its_controls_and_its_catalog_shows_them(tmp_path):
    (tmp_path / "text").mkdir()
    data = {"text": written_text(tmp_path / "text")}
    data |= fixture_folders(benchmark("longbench").reads("qasper"), tmp_path)
    model = save("llama", tmp_path / "model", max_position_embeddings=512)

    def planned(home: str, **controls: bool) -> Small:
        asked = {"name": "passkey", "profile": "fast", "num_samples": 6, "lengths": [320]}
        cut = {"name": "longbench", "tasks": ["qasper"], "lengths": [320]}
        methods = ["none", "dynamic_pi"]
        asked |= controls
        return Small(model, data, Path(tmp_path / home), benchmarks=[asked, cut], methods=methods)

    def ids(small: Small) -> list[str]:
        cells = [cell for cell in small.plan.cells if cell.benchmark == "passkey"]
        return [cell.step.fingerprint for cell in cells if cell.step]

    plain, small = planned("plain"), planned("home", controls=True)
    assert ids(planned("off", controls=False)) == ids(plain)
    assert not {*ids(small)} & {*ids(plain)}
    found = Inspection(small.plan, {}, small.store, small.execution)
    planned_checks = [*checked_prompts(found)]
    assert [*prompt_lines(found)] == [
        "! prompts of longbench qasper 320: num_cut 4",
        "prompts: 10 built and checked",
    ]
    small.run()
    small.store.studies.save_plan("shared", small.plan.to_json(), "mine.yaml")
    records = [small.store.record(cell.step) for cell in small.plan.cells if cell.step]
    for row, record in zip(planned_checks, [records[0], records[-1]], strict=True):
        assert record is not None
        assert record.result["checks"].items() <= row.items()
    record = records[0]
    assert record is not None
    cost = {name: record.result[name]["tokens"] for name in ("measured", "predicted")}
    assert cost["predicted"] - 12 * 128 == 6 * 320  # six prompts with two controls each
    lengths = record.result["prompt_tokens"]
    assert cost["measured"] > 6 * lengths["mean"]
    catalog = build_catalog(small.store)
    passkey = "WHERE benchmark = 'passkey'"
    _, rows = run_query(catalog, f"SELECT no_context, local_context FROM cells {passkey}")
    assert rows == [(0.0, 0.0)] * 2  # of a model with random weights
    _, rows = run_query(catalog, "SELECT problem, num_cut, num_answer_elsewhere FROM prompt_checks")
    assert rows == [(None, 0, 0), ("4 lost their middle", 4, None)] * 2
