"""Measure how much each optimisation of evaluation saves, as ratios of time or memory.

Each row compares evaluation without and with one optimisation, and is printed only if the results
agree. The model is the toy base model with random weights, because the cost does not depend on
their values.
"""

from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from measuring import Row, at_least, compare, measure
from torch.nn import functional
from transformers import LlamaForCausalLM

from lce_core.benchmarks import CellRequest, Score, text_answers
from lce_core.benchmarks.ruler import NEW_TOKENS, match
from lce_core.contracts.benchmark_cases import streams
from lce_core.evaluation.continuations import continuation_log_likelihoods
from lce_core.evaluation.decoding import generate
from lce_core.evaluation.likelihood import window_scores
from lce_core.evaluation.windows import LossCache
from lce_core.extension.extending import extend
from lce_core.methods import METHODS
from tests.support.cells import TOY, benchmark, request
from tests.support.torch_memory import peak_bytes


def rows(options: Namespace) -> Iterator[Row]:
    yield fewer_windows(options, 2048, 6)
    yield fewer_windows(options, 8192, 20)
    yield one_pass(options)
    yield shared_prefixes(options, "needle grid, 10 depths", needle_grid(2048), 1.3)
    shots = many_shots(2400, 200)
    yield shared_prefixes(options, "many-shot, 200 questions", shots, 10)
    yield shared_prefixes(options, "many-shot, bf16", shots, 3, dtype=torch.bfloat16)
    yield shared_contexts(options, 2048)
    yield early_stop(options, 2048)
    yield no_full_logits(16384)


def compared(
    options: Namespace,
    names: tuple[str, str],
    limit: float,
    ways: Iterable[Callable[[], Any]],
    check: Callable[[Any, Any], str],
) -> Row:
    """Return a row with the median of first time / second time, after a check of both results.

    `names` are the optimisation and what it is compared with. The second of the `ways` has the
    optimisation. `check` asserts that two results agree and returns how closely.
    """
    found = compare(*ways, options.repeats)
    return row(names, found.wall, limit, check(found.first[-1].result, found.second[-1].result))


def row(names: tuple[str, str], ratio: float, limit: float, agreement: str) -> Row:
    figures = {"ratio": ratio, "limit": at_least(ratio, limit), "check": agreement}
    return {"what": names[0], "against": names[1], **figures}


def fewer_windows(options: Namespace, length: int, limit: float) -> Row:
    """Time LCEG's perplexity with stride 256 and with stride = length."""
    cell = _cell(options, length)

    def score(stride: int) -> Score:
        return _perplexity(cell, LossCache(), stride=stride)

    def check(wide: Score, narrow: Score) -> str:
        low, high = narrow.ci_low, narrow.ci_high
        assert low <= wide.value <= high, (wide, narrow)
        return f"{narrow.value:.3f} [{low:.3f}, {high:.3f}] contains {wide.value:.3f}"

    names = f"perplexity at {length}: stride = length", "stride 256"
    ways = (partial(score, stride) for stride in (256, length))
    return compared(options, names, limit, ways, check)


def one_pass(options: Namespace) -> Row:
    """Time four lengths: losses taken from the longest window, against a pass for each length."""
    lengths = (4096, 2048, 1024, 512)
    cells = [replace(_cell(options, lengths[0]), eval_length=length) for length in lengths]

    def values(*, share: bool) -> list[float]:
        losses = [LossCache()] * 4 if share else [LossCache() for _ in cells]
        pairs = zip(cells, losses, strict=True)
        return [_perplexity(cell, one, last=256, stride=256).value for cell, one in pairs]

    def check(expected: list[float], found: list[float]) -> str:
        error = float(np.abs(np.array(found) / np.array(expected) - 1).max())
        assert error < 1e-5, error
        return f"equal to {error:.0e}"

    names = f"perplexity at {lengths}: from the longest", "a pass for each"
    return compared(options, names, 1.3, _apart_and_shared(values), check)


def shared_prefixes(
    options: Namespace,
    name: str,
    prompts: list[np.ndarray],
    limit: float,
    *,
    dtype: torch.dtype = torch.float64,  # rounding must not change the chosen tokens
) -> Row:
    """Time answers of 8 tokens with and without processing common prefixes once."""
    model = _cell(options, 512).model
    model.model.to(dtype)  # type: ignore[call-overload]

    def answers(*, share: bool) -> list[list[int]]:
        found = generate(model, prompts, max_new_tokens=8, batch_tokens=8192, share_prefixes=share)
        return [answer.tolist() for answer in found]

    def check(apart: list[list[int]], together: list[list[int]]) -> str:
        assert apart == together
        return "equal answers"

    names = f"{name}: shared prefixes", "one by one" if model.coarse else "batches"
    return compared(options, names, limit, _apart_and_shared(answers), check)


def shared_contexts(options: Namespace, length: int) -> Row:
    """Time the scores of choices of 4 to 15 tokens with and without sharing the contexts."""
    model, rng = _cell(options, 512).model, np.random.default_rng(0)
    contexts = rng.integers(256, size=(8, length))
    sizes = rng.integers(4, 16, size=(8, 4))
    texts = [
        (context, rng.integers(256, size=size))
        for context, some in zip(contexts, sizes, strict=True)
        for size in some
    ]

    def scores(*, share: bool) -> list[tuple[float, bool]]:
        return continuation_log_likelihoods(model, texts, batch_tokens=8192, share_prefixes=share)

    def check(apart: list[tuple[float, bool]], together: list[tuple[float, bool]]) -> str:
        error = max(abs(one - other) for (one, _), (other, _) in zip(apart, together, strict=True))
        assert error < 1e-4, error
        assert [greedy for _, greedy in apart] == [greedy for _, greedy in together]
        return f"equal to {error:.0e} nats"

    names = "8 questions, 4 choices each: shared contexts", "batches"
    return compared(options, names, 2, _apart_and_shared(scores), check)


def early_stop(options: Namespace, length: int) -> Row:
    """Time a RULER cell with and without stopping an answer once it is correct.

    A model with random weights gives no correct answers. Therefore the reference of each prompt is
    replaced by the first characters of the model's own answer, as many as the reference had.
    """
    task = "niah_single_1"
    ruler: Any = benchmark("ruler", profile="clean", num_samples=8)
    cell = replace(_cell(options, length), task=task)
    cell.model.model.double()  # rounding must not change the chosen tokens
    with torch.no_grad():  # suppress control characters, which the scoring removes
        head = cell.model.model.get_output_embeddings().weight
        head[:32] = head[127:] = 0
    drawn = ruler.prompts(cell)

    def answers(rules: Any) -> list[str]:
        return text_answers(cell, drawn, max_new_tokens=NEW_TOKENS[task], complete=rules)

    def never(_: str) -> bool:
        return False

    prompts = [
        replace(prompt, references=(text[: len(prompt.reference)],))
        for prompt, text in zip(drawn, answers(never), strict=True)
    ]
    stops = [partial(ruler.complete, task, prompt) for prompt in prompts]

    def check(whole: list[str], short: list[str]) -> str:
        for prompt, *texts in zip(prompts, whole, short, strict=True):
            assert [match(task, text, prompt.references) for text in texts] == [1, 1]
            assert len(texts[1]) < len(texts[0])
        return f"equal scores, {sum(map(len, short))} of {sum(map(len, whole))} characters"

    names = f"RULER {task} at {length}: early stop", "full answers"
    ways = (partial(answers, rules) for rules in (never, stops))
    return compared(options, names, 1.3, ways, check)


def needle_grid(length: int) -> list[np.ndarray]:
    """Return ten prompts: one haystack with a needle of 16 tokens at ten depths."""
    rng = np.random.default_rng(0)
    haystack, needle = rng.integers(256, size=length), rng.integers(256, size=16)
    places = [round(share * length) for share in np.linspace(0, 1, 10)]
    return [np.concatenate([haystack[:p], needle, haystack[p:], needle[:4]]) for p in places]


def many_shots(length: int, num_questions: int) -> list[np.ndarray]:
    """Return prompts with the same demonstrations and questions of 16 to 31 tokens."""
    rng = np.random.default_rng(0)
    shots = rng.integers(256, size=length)
    sizes = rng.integers(16, 32, size=num_questions)
    return [np.concatenate([shots, rng.integers(256, size=size)]) for size in sizes]


def no_full_logits(length: int) -> Row:
    """Compare the memory of losses in blocks with losses from full logits (32,000 ids)."""
    config = TOY.config()  # type: ignore[attr-defined]
    config.vocab_size = 32000
    torch.manual_seed(0)
    stock = LlamaForCausalLM(config).eval()
    model = extend(stock, TOY, METHODS.parse({"name": "none"}, "perf"), target=length)
    model.begin_request(length)
    windows = np.random.default_rng(0).integers(32000, size=(1, length))
    ids = torch.from_numpy(windows)

    def full() -> torch.Tensor:
        with torch.no_grad():
            logits = stock(ids).logits[0, :-1]
            return functional.cross_entropy(logits.float(), ids[0, 1:], reduction="none")

    def in_blocks() -> np.ndarray:
        return window_scores(model, windows, batch_tokens=length).nll[0]

    error = float(np.abs(in_blocks() - full().numpy()).max())
    assert error < 1e-4, error
    names = f"memory of losses at {length}", "full logits"
    return row(names, peak_bytes(full) / peak_bytes(in_blocks), 5, f"equal to {error:.0e}")


def _perplexity(cell: CellRequest, losses: LossCache, **parameters: int) -> Score:
    asked = benchmark("perplexity", domains=["prose"], **parameters)
    return asked.evaluate(replace(cell, losses=losses)).scores[0]


def _apart_and_shared(way: Callable[..., Any]) -> Iterator[Callable[[], Any]]:
    return (partial(way, share=share) for share in (False, True))


def _cell(options: Namespace, length: int) -> CellRequest:
    text = streams(options.tokens)
    return request(benchmark("perplexity", domains=["prose"]), length, held_out=text)


if __name__ == "__main__":
    measure(__doc__, rows, tokens=32768, threads=2, repeats=3)
