"""Chat templates: prompts equal what transformers renders and tokenises itself; refusals."""

import copy
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from lce_core.benchmarks import BENCHMARKS, PromptBenchmark
from lce_core.benchmarks._prompted.chat import Frame, chat_ids
from lce_core.contracts.benchmark_cases import Case, fresh, held_out, request_for, words_tokenizer
from lce_core.errors import SpecError, UnavailableError
from tests.support.cells import TOY, benchmark, request
from tests.support.data.fixture_data import fixture_folders

TEMPLATE = (
    "{{ bos_token }}{% for one in messages %}<|start|>{{ one.role }}\n{{ one.content }}<|end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)
ALTERNATING = (
    "{% for one in messages %}{% if (one.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}{% endfor %}" + TEMPLATE
)
CHATTING = [
    name
    for name in BENCHMARKS.names()
    if issubclass(plugin := BENCHMARKS.load(name), PromptBenchmark) and not plugin.conversation
]


def chat_tokenizer(template=TEMPLATE):
    tokenizer = copy.deepcopy(words_tokenizer())
    tokenizer.add_tokens(["<|start|>", "<|end|>"], special_tokens=True)
    tokenizer.chat_template = template
    return tokenizer


def stock(tokenizer, *messages):
    chat = [{"role": role, "content": content} for role, content in messages]
    return tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=False)


@pytest.mark.parametrize("system", [None, "Answer in one word."])
@pytest.mark.parametrize("name", ["passkey", "json_kv", "graphwalks"])
def test_a_prompt_in_a_chat_is_what_transformers_renders(name, system):
    asked = benchmark(name, num_samples=3, chat=True, system_prompt=system)
    tokenizer = chat_tokenizer()
    cell = request(asked, 1500, tokenizer=tokenizer)
    prompts = asked.prompts(cell)
    asked.require_filled(cell, prompts)
    for prompt in prompts:
        text = tokenizer.decode(prompt.ids)
        message = text.rpartition("<|start|>user\n")[2].removesuffix(
            "<|end|>\n<|start|>assistant\n"
        )
        turns = [("system", system)] * (system is not None) + [("user", message)]
        assert prompt.ids.tolist() == stock(tokenizer, *turns)


@pytest.mark.parametrize("name", sorted({*CHATTING} - {"mrcr"}))
def test_a_chat_adds_its_template_to_the_prompts_of_a_shorter_length(name, tmp_path):
    plugin, data = BENCHMARKS.load(name), partial(fixture_folders, root=tmp_path)
    plain, case = (
        Case(plugin, {**plugin.examples[0], **chat}, "clean", data) for chat in ({}, {"chat": True})
    )
    task = case.benchmark.tasks()[0 if name == "longbench" else -1]
    cell = request_for(case, task, tokenizer=chat_tokenizer())
    tokens = stock(cell.tokenizer, ("user", "X"))
    at = tokens.index(*cell.tokenizer.encode("X", add_special_tokens=False))
    before, after = tokens[:at], tokens[at + 1 :]
    added = len(tokens) - 2
    shorter = replace(cell, eval_length=cell.eval_length - added, template_tokens=added)
    for prompt, inner in zip(fresh(case, cell), fresh(plain, shorter), strict=True):
        assert inner.ids[0] == cell.tokenizer.bos_token_id
        assert prompt.ids.tolist() == [*before, *inner.ids[1:].tolist(), *after]
        assert (prompt.reference, prompt.labels) == (inner.reference, inner.labels)
        context = prompt.ids[: prompt.context_tokens]
        np.testing.assert_array_equal(context[at:], inner.ids[1 : inner.context_tokens or 1])
        parts = list(zip(prompt.inserted[::2], prompt.inserted[1::2], strict=True))
        own = list(zip(inner.inserted[::2], inner.inserted[1::2], strict=True))
        assert parts[:1] == [(0, at)] * bool(own)
        for (start, end), (first, last) in zip(parts[1:], own, strict=True):
            np.testing.assert_array_equal(prompt.ids[start:end], inner.ids[first:last])


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("passkey", {"num_samples": 2}),
        ("ruler", {"tasks": ["niah_multikey_2"], "num_samples": 2}),
        ("ruler", {"tasks": ["fwe"], "num_samples": 2}),
        ("multi_key", {"num_contexts": 1}),
        ("babilong", {"num_stories": 2, "max_facts": 8}),
    ],
)
def test_a_template_changes_no_key(name, parameters):
    words = {"tokenizer": chat_tokenizer(), "held_out": held_out(in_words=True)}
    task = parameters.pop("tasks", [None])[0]
    keys = []
    for chat in ({}, {"chat": True}, {"chat": True, "system_prompt": "Answer in one word."}):
        asked = benchmark(name, **parameters, **chat)
        cell = request(asked, 1500, **words, task=task or asked.tasks()[0])
        keys.append([prompt.right_answers for prompt in asked.prompts(cell)])
    assert keys[0] == keys[1] == keys[2]


def test_rulers_variants_for_short_lengths_ignore_the_template():
    ruler = benchmark("ruler")
    task, _, draw = ruler._task(request(ruler, 4050, task="cwe", template_tokens=46))
    assert " 303. " in task.draft(11, 0, draw).text, "ten words 30 times, and one 3 times"
    task, *_ = ruler._task(request(ruler, 4050, task="niah_single_1", template_tokens=46))
    assert task.units.step == 25


def test_few_shot_and_code_tasks_of_longbench_have_no_template(tmp_path):
    plain, chat = (benchmark("longbench", chat=on) for on in (False, True))
    for task, alike in (("trec", True), ("lcc", True), ("qasper", False)):
        folders = fixture_folders(plain.reads(task), tmp_path)
        words = {"tokenizer": chat_tokenizer(), "data_folders": folders}
        ids, other = (
            [p.ids.tolist() for p in one.prompts(request(one, 1500, task=task, **words))]
            for one in (plain, chat)
        )
        assert (ids == other) == alike


def test_a_template_with_a_line_break_before_the_message_fits_a_sentencepiece_tokenizer():
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    backend.decoder = decoders.Metaspace(prepend_scheme="first")
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<s>", "<|start|>", "<|end|>"],
        initial_alphabet=[*map(chr, range(32, 127)), "\n"],
        show_progress=False,
    )
    backend.train_from_iterator(["Xylophone, the pass key is in this text."] * 4, trainer)
    backend.post_processor = processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 0)])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<s>", clean_up_tokenization_spaces=False
    )
    tokenizer.chat_template = TEMPLATE
    asked = benchmark("passkey", num_samples=2)
    cell = request(asked, 1500, tokenizer=tokenizer)
    frame = Frame.of(cell, None)
    for prompt in asked.prompts(cell):
        message = tokenizer.decode(prompt.ids, skip_special_tokens=True)
        rendered = tokenizer.decode(stock(tokenizer, ("user", f" {message}")))
        assert tokenizer.decode(frame.around(prompt).ids) == rendered


def test_the_messages_of_mrcr_are_messages_of_the_chat(tmp_path):
    asked, tokenizer = benchmark("mrcr", chat=True), chat_tokenizer()
    folders = fixture_folders(asked.reads("needles_2"), tmp_path)
    cell = request(asked, 4000, task="needles_2", tokenizer=tokenizer, data_folders=folders)
    for prompt in reversed(asked.prompts(cell)):
        turns = (
            tokenizer.decode(prompt.ids).removeprefix("<s><|start|>").split("<|end|>\n<|start|>")
        )
        assert turns.pop() == "assistant\n"
        messages = [tuple(turn.split("\n", 1)) for turn in turns]
        assert messages[0] == ("user", "Examples follow.\n")
        assert messages[1][1].startswith("write a ")
        assert prompt.ids.tolist() == stock(tokenizer, *messages)
    other = replace(cell, tokenizer=chat_tokenizer(TEMPLATE.replace("assistant", "model")))
    assert tokenizer.decode(asked.prompts(other)[0].ids).endswith("<|start|>model\n")
    strict = asked.prompts(replace(cell, tokenizer=chat_tokenizer(ALTERNATING)))[0]
    (_, examples), (_, first), *later = messages
    joined = stock(tokenizer, ("user", f"{examples}\n{first}"), *later)
    assert strict.ids.tolist() == joined


def test_templates_read_one_date_and_no_thinking():
    template = "{% for _ in messages %}{{ strftime_now('%Y') }}|{% endfor %}{{ enable_thinking }}"
    cell = request(benchmark("passkey"), 100, tokenizer=chat_tokenizer(template))
    found = cell.tokenizer.decode(chat_ids(cell, [{"role": "user", "content": ""}], None))
    assert found == "26 Jul 2024|False"


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        (None, "chat_template is not set"),
        ("{{ messages[0].content }}, {{ messages[0].content }}", "as 'Xylophone, Xylophone'"),
        ("{{ messages[0].content.lower() }}", "as 'xylophone'"),
        ("no message", "as ''"),
        ("", "as ''"),
        ("{{ raise_exception('no system prompt') }}", "no system prompt"),
        ("{{ ''.__class__.__mro__ }}", "SecurityError"),
    ],
    ids=str,
)
def test_a_template_that_cannot_hold_a_prompt_makes_the_cell_unavailable(template, reason):
    asked = benchmark("passkey", num_samples=2, chat=True)
    with pytest.raises(UnavailableError, match=f"toy_llama: chat template: got .*{reason}"):
        asked.prompts(request(asked, 500, tokenizer=chat_tokenizer(template)))


def test_a_template_without_a_system_prompt_is_refused_with_that_advice():
    asked = benchmark("passkey", num_samples=2, chat=True, system_prompt="Answer.")
    with pytest.raises(UnavailableError, match=r"roles must alternate.*`system_prompt` if the"):
        asked.prompts(request(asked, 500, tokenizer=chat_tokenizer(ALTERNATING)))


@pytest.mark.parametrize(
    ("name", "length", "reason"),
    [("passkey", 5, "at least one token"), ("longbench_v2", 165, "at least 160 tokens")],
)
def test_a_length_without_room_for_the_template_is_refused(name, length, reason):
    asked = benchmark(name, num_samples=2, chat=True)
    assert asked.unavailable(TOY, asked.tasks()[0], length) is None
    cell = request(asked, length, tokenizer=chat_tokenizer())
    with pytest.raises(UnavailableError, match=f"the chat template takes .*{reason}"):
        asked.fresh_prompts(cell)


@pytest.mark.parametrize(
    ("name", "parameters", "reason"),
    [
        ("passkey", {"chat": True, "profile": "tiny"}, "is not in words"),
        ("multi_turn", {"chat": True}, "asks several questions"),
        ("passkey", {"system_prompt": ""}, "`chat: true` beside it"),
    ],
)
def test_a_chat_without_effect_is_refused(name, parameters, reason):
    with pytest.raises(SpecError, match=reason):
        benchmark(name, **parameters)


def test_a_context_in_a_chat_passes_once_for_its_questions():
    asked = benchmark("babilong", num_stories=2, max_facts=10, chat=True)
    words = {"tokenizer": chat_tokenizer(), "held_out": held_out(in_words=True)}
    whole, shared = (
        asked.evaluate(request(asked, 700, task="qa1", savings=savings, **words))
        for savings in (False, True)
    )
    assert [one.likeliest for one in whole.samples] == [one.likeliest for one in shared.samples]
    assert {one.prompt_end[-10:] for one in shared.samples} == {"assistant\n"}
