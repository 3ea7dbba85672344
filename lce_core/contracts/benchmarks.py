"""Checks that every benchmark must pass, whatever it measures; `lce check` runs them."""

import math
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, get_args

import numpy as np

from lce_core.benchmarks import (
    BENCHMARKS,
    CONTROLS,
    Benchmark,
    CellRequest,
    Kind,
    PromptBenchmark,
    TextBenchmark,
    occurrences,
)
from lce_core.contracts import plugins
from lce_core.contracts.benchmark_cases import (
    TOY,
    Case,
    Streams,
    alike,
    cases,
    evaluated_tasks,
    fresh,
    gold_answer,
    line_tokenizer,
    request_for,
    requests,
    roomy,
    score_of,
    toy_model,
    wordy_model,
)
from lce_core.errors import UnavailableError

RANGES: dict[str, tuple[float, float]] = {
    "accuracy": (0, 1),
    "perplexity": (1, math.inf),
    "nats": (0, math.inf),
}

BenchmarkCheck = Callable[[Case], None]


def check_form(case: Case) -> None:
    """Check that source, description, identity, unit and tasks are valid."""
    plugins.check_source(case.plugin)
    plugins.check_description(case.plugin)
    parameters = {**case.example, "profile": case.profile}
    plugins.check_identity(BENCHMARKS, case.plugin, parameters)
    for name, offered in (("unit", tuple(RANGES)), ("kind", get_args(Kind))):
        got = getattr(case.plugin, name)
        assert got in offered, f"got the {name} {got!r}; expected one of {', '.join(offered)}"
    assert isinstance(case.plugin.seeded, bool)
    assert case.benchmark.tasks(), "tasks() returns no task"


def check_evidence(case: Case) -> None:
    """Check that the benchmark's own code reproduces its reference values."""
    plugins.check_evidence(BENCHMARKS, case.plugin)


def check_prompts(case: Case) -> None:
    """Check that tasks build the prompts of `num_prompts` samples, with room for the answers."""
    for task, short in requests(case):
        for request in (short, roomy(short)):
            prompts = case.benchmark.prompts(request)
            promised = case.benchmark.num_prompts(task)
            # A sample may consist of several prompts.
            whole = len(prompts) % max(promised, 1) == 0
            assert whole or request.data_folders, (
                f"{task}: got {len(prompts)} prompts; expected a multiple of {promised}"
            )
            # Faithful forms reproduce scripts in which the answer comes on top of the length.
            answer = 0 if case.profile == "faithful" else case.benchmark.longest_answer(task)
            longest = max(len(prompt.ids) for prompt in prompts) + answer
            assert longest <= request.eval_length, (
                f"{task}: got a prompt of {longest} tokens, {answer} of them for its answer;"
                f" expected at most {request.eval_length}"
            )
            assert all(prompt.reference for prompt in prompts), f"{task}: empty reference"


def check_deterministic(case: Case) -> None:
    """Check that prompts depend on the request alone, not on earlier requests."""
    for task, request in requests(case):
        first = fresh(case, request)
        longer = replace(request, eval_length=request.eval_length + 64)
        fresh(case, longer)
        assert alike(first, fresh(case, request)), f"{task}: prompts differ from call to call"


def check_seed(case: Case) -> None:
    """Check that the study's seed changes the prompts if and only if `seeded` is True."""
    if case.example is not case.plugin.examples[0]:
        return  # the other examples are tried together with the first
    changed = []
    for other in cases(case.plugin, case.data):
        if other.in_words != case.in_words:
            continue
        for _, request in requests(other):
            once, again = (fresh(other, replace(request, seed=seed)) for seed in (0, 1))
            changed.append(not alike(once, again))
    assert any(changed) == case.plugin.seeded, (
        f"seeded is {case.plugin.seeded}, but another seed {'changes' if any(changed) else 'keeps'}"
        " the prompts"
    )


def check_independent(case: Case) -> None:
    """Check that the random draws of one sample change no sample of another cluster."""
    kind: Any = type(case.benchmark)

    class Redrawn(kind):  # type: ignore[misc]
        def draws(self, request: CellRequest) -> list[np.random.Generator]:
            drawn: list[np.random.Generator] = super().draws(request)
            drawn[0] = np.random.default_rng(987654321)
            return drawn

    redrawn = replace(case)
    parameters = case.benchmark.model_dump(exclude_unset=True)
    redrawn.__dict__["benchmark"] = Redrawn.model_validate(parameters)
    for task, request in requests(case):
        before = fresh(case, request)
        after = fresh(redrawn, request)
        # Number of prompts of the first sample.
        first = max(1, len(before) // max(1, case.benchmark.num_prompts(task)))
        # Questions about one text share its draws.
        names = [prompt.cluster for prompt in before]
        others = [
            index
            for index, name in enumerate(names)
            if index >= first and (name is None or name != names[0])
        ]
        assert alike([before[i] for i in others], [after[i] for i in others]), (
            f"{task}: the first sample's draws change other samples"
        )


def check_hidden(case: Case) -> None:
    """Check that a reference with a depth occurs at a single place of the prompt.

    A key token must occur exactly once. Text may repeat a reference within 10 % of the prompt. If
    the prompt has `evidence`, this text must occur, and the reference may also stand elsewhere.
    """
    for task, request in requests(case, roomy):
        for prompt in case.benchmark.prompts(request):
            if prompt.depth is None or len(prompt.references) > 1:
                continue
            places = occurrences(request, prompt, in_words=case.in_words)
            if not case.in_words:
                assert len(places) == 1, f"{task}: the key occurs {len(places)} times"
            stated = prompt.evidence or prompt.reference
            assert places or not prompt.evidence, f"{task}: the prompt lacks {stated!r}"
            assert not places or places[-1] - places[0] <= 0.1, (
                f"{task}: {stated!r} occurs from {places[0]:.0%} to {places[-1]:.0%} of"
                f" the prompt; expected only one place, at its depth of {prompt.depth:.0f} %"
            )


def check_depths(case: Case) -> None:
    """Check that references with a larger depth occur later in the prompt."""
    for task, request in requests(case, roomy):
        found = []
        for prompt in case.benchmark.prompts(request):
            places = occurrences(request, prompt, in_words=case.in_words)
            one = len(prompt.right_answers) == 1
            if prompt.depth is not None and places and one:
                found.append((prompt.depth, places[0]))
        shallow = [place for depth, place in found if depth < 35]
        deep = [place for depth, place in found if depth > 65]
        if shallow and deep:
            assert max(shallow) < min(deep), f"{task}: a larger depth is not later in the prompt"


def check_controls(case: Case) -> None:
    """Check that control prompts are shorter, and that the answer's neighbourhood states it."""
    for task, request in requests(case):
        for prompt in case.benchmark.prompts(request):
            short = [replace(prompt, ids=np.array(ids)) for ids in prompt.controls]
            sizes = [len(one.ids) for one in (*short, prompt)]
            assert sizes == sorted(sizes), (
                f"{task}: control prompts of {sizes[:-1]} tokens for a prompt of {sizes[-1]};"
                " expected the one without context first, and none longer than the prompt"
            )
            stated = [
                len(occurrences(request, one, in_words=case.in_words)) for one in (*short, prompt)
            ]
            if len(short) == len(CONTROLS):
                assert stated[0] < stated[1] or stated[0] == stated[2], (
                    f"{task}: the answer occurs {stated[0]} times in the prompt without its"
                    f" context, {stated[1]} times with its neighbourhood; expected more"
                )


def check_oracle(case: Case) -> None:
    """Check that the reference scores above 0.9 and unrelated answers score below 0.05."""
    if not case.in_words:
        return
    for task, request in requests(case):
        prompts = case.benchmark.prompts(request)
        gold = score_of(case, task, prompts, [gold_answer(prompt) for prompt in prompts])
        assert min(gold) > 0.9, f"{task}: the reference itself scores {min(gold):.2f}"
        for wrong in ("", "\u00a7\u00a7\u00a7", "\n"):
            scores = score_of(case, task, prompts, [wrong] * len(prompts))
            assert max(scores) < 0.05, f"{task}: the answer {wrong!r} scores {max(scores):.2f}"
        assert max(gold) <= 1


def check_early_stop(case: Case) -> None:
    """Check that text after an answer that `complete` accepts does not change its score."""
    if not case.in_words:
        return
    for task, request in requests(case):
        for prompt in case.benchmark.prompts(request)[:3]:
            for answer in (gold_answer(prompt) + "\nmore 12 \n", " 12 zq\n" + gold_answer(prompt)):
                for size in range(len(answer)):
                    if case.benchmark.complete(task, prompt, answer[:size]):
                        early = score_of(case, task, [prompt], [answer[:size]])
                        late = score_of(case, task, [prompt], [answer])
                        assert early == late, (
                            f"{task}: {answer[:size]!r} counts as complete, but further text"
                            f" changes its score from {early[0]:g} to {late[0]:g}"
                        )


def check_cell(case: Case) -> None:
    """Check an evaluation of the toy model: scores, intervals, samples and tokens are valid."""
    steps: list[tuple[int, int]] = []
    prompted = isinstance(case.benchmark, PromptBenchmark)
    benchmark = case.benchmark.model_copy(update={"controls": True} if prompted else {})
    for task in evaluated_tasks(case):
        request = request_for(case, task)
        request = replace(request, report=lambda done, total: steps.append((done, total)))
        result = benchmark.evaluate(request)
        metrics = [score.metric for score in result.scores]
        assert case.benchmark.default_metric in metrics
        assert len(set(metrics)) == len(metrics)
        low, high = RANGES[case.plugin.unit]
        for score in result.scores:
            assert score.ci_low is not None, f"{score.metric}: no confidence interval"
            assert score.ci_high is not None
            assert score.ci_low <= score.value <= score.ci_high
            assert score.num_samples > 0
            if score.metric == case.benchmark.default_metric:
                assert low <= score.value <= high, (
                    f"{score.metric} {score.value} is out of range for {case.plugin.unit}"
                )
        assert [sample.sample for sample in result.samples] == list(range(len(result.samples)))
        assert steps[-1][0] == steps[-1][1]
        fills = not case.in_words or isinstance(case.benchmark, TextBenchmark)
        if fills and not case.benchmark.reads(task):
            tokens = len(request.held_out.stream("code"))
            predicted = case.benchmark.num_tokens(task, request.eval_length, tokens)
            assert abs(result.num_tokens - predicted) <= 0.15 * predicted, (
                f"{result.num_tokens} tokens were processed, {predicted} were predicted"
            )


def check_uniform_model(case: Case) -> None:
    """Check that a model with equal probabilities has the vocabulary's size as perplexity."""
    if not isinstance(case.benchmark, TextBenchmark):
        return
    for task in evaluated_tasks(case):
        request = request_for(case, task, model=toy_model(uniform=True))
        size = TOY.shape.vocab_size
        expected = {"perplexity": float(size), "nats": math.log(size)}[case.plugin.unit]
        scores = {score.metric: score.value for score in case.benchmark.evaluate(request).scores}
        found = scores[case.benchmark.default_metric]
        assert math.isclose(found, expected, rel_tol=1e-4), (
            f"got {found} {case.plugin.unit} for a uniform model of {size} tokens;"
            f" expected {expected}"
        )


def check_repeatable(case: Case) -> None:
    """Check that repeating an evaluation after another one gives the same result."""
    for task in evaluated_tasks(case)[:1]:
        request = request_for(case, task)
        first = case.benchmark.evaluate(request)
        # Evaluate another length in between only if that is fast.
        if not (case.in_words and isinstance(case.benchmark, PromptBenchmark)):
            case.benchmark.evaluate(replace(request, eval_length=request.eval_length + 32))
        assert case.benchmark.evaluate(request) == first, (
            f"{task}: repeated, the evaluation gives another result"
        )


def check_savings(case: Case) -> None:
    """Check that early stopping and shared passes change no score.

    Models are in float64, so that other chunks and batches cannot change a token. Cases in profile
    tiny that read no data set also try a method whose frequencies depend on the length.
    """
    small = case.profile == "tiny" and not case.benchmark.reads(case.benchmark.tasks()[0])
    for method in ("none", "dynamic_yarn") if small else ("none",):
        for task in evaluated_tasks(case):
            words = {"tokenizer": line_tokenizer()} if case.in_words else {}
            request = request_for(case, task, model=wordy_model(method), **words)
            whole, short = (
                case.benchmark.evaluate(replace(request, savings=on)) for on in (False, True)
            )
            assert len(whole.samples) == len(short.samples) > 0
            for before, after in zip(whole.samples, short.samples, strict=True):
                assert math.isclose(after.score, before.score, rel_tol=1e-6), (
                    f"{task}: with savings, sample {before.sample} scores {after.score}, not"
                    f" {before.score}"
                )
                assert (before.prediction or "").startswith(after.prediction or ""), (
                    f"{task}: sample {after.sample}: the answer that stops early differs from the"
                    " whole one"
                )
            for one, other in zip(whole.scores, short.scores, strict=True):
                assert one.metric == other.metric
                assert math.isclose(one.value, other.value, rel_tol=1e-6), (
                    f"{task}: with savings, {one.metric} is {other.value}, not {one.value}"
                )


def check_too_short(case: Case) -> None:
    """Check that a length of one token is refused, and that the message states the minimum."""
    task = case.benchmark.tasks()[0]
    request = replace(request_for(case, task), eval_length=1)
    reason = case.benchmark.unavailable(TOY, task, 1)
    if reason is None:
        try:
            case.benchmark.evaluate(request)
        except UnavailableError as error:
            reason = str(error)
    if reason is None and case.profile == "faithful" and case.in_words:
        return  # scripts that cut the middle of a prompt accept any length
    assert reason is not None, "a length of one token is not refused"
    assert re.search(r"at least \d+|needs? \d+", reason), f"no number of tokens in {reason!r}"


def check_excerpt(case: Case) -> None:
    """Check that prompts cannot be built from less held-out text than `excerpt_tokens`."""
    for task, request in requests(case):
        num = case.benchmark.excerpt_tokens(TOY, task, request.eval_length)
        size = num - 1 if num else request.eval_length // 2
        whole = request.held_out
        text = Streams({domain: whole.stream(domain)[:size] for domain in whole.domains})
        try:
            fresh(case, replace(request, held_out=text))  # type: ignore[arg-type]
            refused = ""
        except UnavailableError as error:
            refused = str(error)
        assert bool(refused) == (num > 0), (
            f"{task}: excerpt_tokens is {num}; with {size} tokens of held-out text, prompts"
            f" {'cannot' if refused else 'can'} be built. {refused}"
        )


OF_ALL: tuple[BenchmarkCheck, ...] = (
    check_form,
    check_evidence,
    check_cell,
    check_repeatable,
    check_savings,
    check_uniform_model,
    check_too_short,
)
OF_PROMPTS: tuple[BenchmarkCheck, ...] = tuple(
    value
    for name, value in [*globals().items()]
    if name.startswith("check_") and value.__module__ == __name__ and value not in OF_ALL
)


def checks(plugin: type[Benchmark]) -> tuple[BenchmarkCheck, ...]:
    return (*OF_ALL, *OF_PROMPTS) if issubclass(plugin, PromptBenchmark) else OF_ALL
