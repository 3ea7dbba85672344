"""Measure how much each optimisation of evaluation saves, as ratios of time or memory.

Each row times evaluation without and with one optimisation, one right after the other in
alternating order, and prints the median ratio of wall and of CPU seconds. The script checks first
that the results agree: the interval from fewer windows contains the perplexity of all windows,
losses are equal to 1e-5, and answers are equal. The model is the toy base model with random
weights, because the cost does not depend on their values. Memory is the peak of torch's allocator
during one call.

    python perf/evaluation.py [--out FILE.json]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from figures import command_line, publish, without_out
from measuring import alternate, peak_memory, ratio
from torch.nn import functional
from transformers import LlamaForCausalLM

from lce_core.benchmarks import BENCHMARKS, Benchmark, CellRequest, CellResult, text_answers
from lce_core.benchmarks.ruler import match, new_tokens
from lce_core.evaluation.continuations import continuation_log_likelihoods
from lce_core.evaluation.decoding import generate
from lce_core.evaluation.likelihood import window_scores
from lce_core.evaluation.loss_cache import LossCache
from lce_core.extension.extending import extend
from lce_core.methods import METHODS
from lce_core.models import MODELS
from lce_core.store.records import environment

BASE = MODELS.parse({"name": "toy_llama"}, "perf")
DOCUMENT_TOKENS = 8192


@dataclass(frozen=True)
class HeldOut:
    """Held-out text with one domain of random words, one byte per token."""

    tokens: np.ndarray
    domains: tuple[str, ...] = ("prose",)

    def stream(self, _: str) -> np.ndarray:
        return self.tokens

    def document_starts(self, _: str) -> np.ndarray:
        return np.arange(0, len(self.tokens), DOCUMENT_TOKENS)


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--tokens", type=int, default=32768, help="tokens of held-out text")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    found = measure(options)
    print("| what | against | ratio | CPU ratio | target | check |\n|---|---|--:|--:|--:|---|")
    for row in found["rows"]:
        cpu = "-" if row["cpu"] is None else f"{row['cpu']:.2f}"
        print(
            f"| {row['name']} | {row['reference']} | {row['ratio']:.2f} | {cpu}"
            f" | {row['target']:g} | {row['check']} |"
        )
    print(f"\n{found['options']}")
    publish(found, options.out, found["environment"]["accelerators"])


def measure(options: argparse.Namespace) -> dict[str, Any]:
    rows = []
    for row in (
        lambda: fewer_windows(options, 2048, 6),
        lambda: fewer_windows(options, 8192, 20),
        lambda: one_pass(options, "perplexity", 1.3, last=256, stride=256),
        lambda: one_pass(
            options, "perplexity_documents", 1.3, truncate=True, min_document_tokens=DOCUMENT_TOKENS
        ),
        lambda: shared_prefixes(options, "needle grid, 10 depths", needle_grid(2048), 1.3),
        lambda: shared_prefixes(options, "many-shot, 200 questions", many_shots(2400, 200), 10),
        lambda: shared_prefixes(
            options, "many-shot, bf16", many_shots(2400, 200), 3, dtype=torch.bfloat16
        ),
        lambda: shared_contexts(options, "8 questions, 4 choices each", 2048, 2),
        lambda: early_stop(options, "niah_single_1", 2048, 1.3),
        lambda: no_full_logits(options, 16384, 5),
    ):
        rows.append(row())
        print(rows[-1], file=sys.stderr, flush=True)
    return {"options": without_out(options), "rows": rows, "environment": environment()}


def fewer_windows(options: argparse.Namespace, length: int, target: float) -> dict[str, Any]:
    """Time LCEG's perplexity with stride 256 and with stride = length."""
    dense, sparse = (_benchmark("perplexity", stride=s, store_nll=True) for s in (256, length))
    request = _request(options, length)
    wall, cpu, wide, narrow = ratios(
        options, lambda: _evaluate(dense, request), lambda: _evaluate(sparse, request)
    )
    of_dense, of_sparse = wide.scores[0], narrow.scores[0]
    assert of_sparse.ci_low is not None
    assert of_sparse.ci_high is not None
    assert of_sparse.ci_low <= of_dense.value <= of_sparse.ci_high, (of_dense, of_sparse)
    windows = np.split(narrow.arrays["nll"].astype(float), np.cumsum(narrow.arrays["losses"])[:-1])
    stored = np.exp(np.mean([nll.mean() for nll in windows]))
    assert abs(stored / of_sparse.value - 1) < 1e-3, (stored, of_sparse)
    return _row(
        f"perplexity at {length}: stride = length",
        "stride 256",
        (wall, cpu),
        target,
        f"{of_sparse.value:.3f} [{of_sparse.ci_low:.3f}, {of_sparse.ci_high:.3f}]"
        f" contains {of_dense.value:.3f}",
    )


def one_pass(
    options: argparse.Namespace, name: str, target: float, **parameters: Any
) -> dict[str, Any]:
    """Time four lengths: losses taken from the longest window, against a pass for each length."""
    benchmark, lengths = _benchmark(name, **parameters), (4096, 2048, 1024, 512)
    request = _request(options, lengths[0])

    def shared() -> list[float]:
        cache = LossCache()
        cells = (replace(request, eval_length=length, losses=cache) for length in lengths)
        return [benchmark.evaluate(cell).scores[0].value for cell in cells]

    def alone() -> list[float]:
        cells = (replace(request, eval_length=length) for length in lengths)
        return [_evaluate(benchmark, cell).scores[0].value for cell in cells]

    wall, cpu, expected, found = ratios(options, alone, shared)
    error = float(np.abs(np.array(found) / np.array(expected) - 1).max())
    assert error < 1e-5, error
    return _row(
        f"{name} at {lengths}: from the longest",
        "a pass for each",
        (wall, cpu),
        target,
        f"equal to {error:.0e}",
    )


def shared_prefixes(
    options: argparse.Namespace,
    name: str,
    prompts: list[np.ndarray],
    target: float,
    *,
    dtype: torch.dtype = torch.float64,  # rounding must not change the chosen tokens
) -> dict[str, Any]:
    """Time answers of 8 tokens with and without processing common prefixes once."""
    model = _request(options, 512).model
    model.model.to(dtype)  # type: ignore[call-overload]

    def answers(*, share: bool) -> list[list[int]]:
        found = generate(model, prompts, max_new_tokens=8, batch_tokens=8192, share_prefixes=share)
        return [answer.tolist() for answer in found]

    wall, cpu, apart, together = ratios(
        options, lambda: answers(share=False), lambda: answers(share=True)
    )
    assert apart == together
    size = f"equal answers, {sum(map(len, prompts)):,} tokens"
    against = "one by one" if model.coarse else "batches"
    return _row(f"{name}: shared prefixes", against, (wall, cpu), target, size)


def shared_contexts(
    options: argparse.Namespace, name: str, length: int, target: float
) -> dict[str, Any]:
    """Time the scores of choices of 4 to 15 tokens with and without sharing the contexts."""
    model, rng = _request(options, 512).model, np.random.default_rng(0)
    contexts = rng.integers(256, size=(8, length))
    sizes = rng.integers(4, 16, size=(8, 4))
    texts = [
        (context, rng.integers(256, size=size))
        for context, some in zip(contexts, sizes, strict=True)
        for size in some
    ]

    def scores(*, share: bool) -> list[tuple[float, bool]]:
        return continuation_log_likelihoods(model, texts, batch_tokens=8192, share_prefixes=share)

    wall, cpu, apart, together = ratios(
        options, lambda: scores(share=False), lambda: scores(share=True)
    )
    error = max(abs(one - other) for (one, _), (other, _) in zip(apart, together, strict=True))
    assert error < 1e-4, error
    assert [greedy for _, greedy in apart] == [greedy for _, greedy in together]
    return _row(
        f"{name}: shared contexts", "batches", (wall, cpu), target, f"equal to {error:.0e} nats"
    )


def early_stop(
    options: argparse.Namespace, task: str, length: int, target: float
) -> dict[str, Any]:
    """Time a RULER cell with and without stopping an answer once it is correct.

    A model with random weights gives no correct answers. Therefore the reference of each prompt is
    replaced by the first characters of the model's own answer, as many as the reference had.
    """
    ruler: Any = BENCHMARKS.parse({"name": "ruler", "profile": "clean", "num_samples": 8}, "perf")
    request = replace(_request(options, length), task=task)
    request.model.model.double()  # rounding must not change the chosen tokens
    with torch.no_grad():  # suppress control characters, which the scoring removes
        head = request.model.model.get_output_embeddings().weight
        head[:32] = head[127:] = 0
    drawn = ruler.prompts(request)

    def answers(rules: Any) -> list[str]:
        return text_answers(request, drawn, max_new_tokens=new_tokens(task), complete=rules)

    said = zip(drawn, answers(lambda _: False), strict=True)
    prompts = [
        replace(prompt, references=(text[: len(prompt.reference)],)) for prompt, text in said
    ]
    stops = [partial(ruler.complete, task, prompt) for prompt in prompts]
    wall, cpu, whole, short = ratios(
        options, lambda: answers(lambda _: False), lambda: answers(stops)
    )
    for prompt, long, brief in zip(prompts, whole, short, strict=True):
        assert match(task, long, prompt.references) == match(task, brief, prompt.references) == 1
        assert len(brief) < len(long)
    cut = f"equal scores, {sum(map(len, short))} of {sum(map(len, whole))} characters"
    return _row(f"RULER {task} at {length}: early stop", "full answers", (wall, cpu), target, cut)


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


def no_full_logits(options: argparse.Namespace, length: int, target: float) -> dict[str, Any]:
    """Compare the memory of losses in blocks with losses from full logits (32,000 ids)."""
    config = BASE.config()  # type: ignore[attr-defined]
    config.vocab_size = 32000
    torch.manual_seed(0)
    stock = LlamaForCausalLM(config).to(options.device).eval()
    model = extend(stock, BASE, METHODS.parse({"name": "none"}, "perf"), target=length)
    model.begin_request(length)
    windows = np.random.default_rng(0).integers(32000, size=(1, length))
    ids = torch.from_numpy(windows).to(options.device)

    def full() -> torch.Tensor:
        with torch.no_grad():
            logits = stock(ids).logits[0, :-1]
            return functional.cross_entropy(logits.float(), ids[0, 1:], reduction="none")

    found = window_scores(model, windows, batch_tokens=length).nll[0]
    error = float(np.abs(found - full().cpu().numpy()).max())
    assert error < 1e-4, error
    most = peak_memory(full, options.device)
    least = peak_memory(lambda: window_scores(model, windows, batch_tokens=length), options.device)
    check = f"{least:.0f} against {most:.0f} MiB, equal to {error:.0e}"
    return _row(f"memory of losses at {length}", "full logits", (most / least, None), target, check)


def ratios(
    options: argparse.Namespace, slow: Callable[[], Any], fast: Callable[[], Any]
) -> tuple[float, float, Any, Any]:
    """Return the median of slow time / fast time (wall, CPU), and the results of both."""
    pairs = alternate(slow, fast, options.repeats)
    return *ratio(pairs), *(one.result for one in pairs[-1])


def _row(
    name: str,
    reference: str,
    ratio: tuple[float, float | None],
    target: float,
    check: str,
) -> dict[str, Any]:
    wall, cpu = ratio
    row = {"name": name, "reference": reference, "ratio": wall, "cpu": cpu}
    return {**row, "target": target, "check": check}


def _benchmark(name: str, **parameters: Any) -> Benchmark:
    return BENCHMARKS.parse({"name": name, "domains": ["prose"], **parameters}, "perf")


def _evaluate(benchmark: Benchmark, request: CellRequest) -> CellResult:
    return benchmark.evaluate(replace(request, losses=LossCache()))


def _request(options: argparse.Namespace, length: int) -> CellRequest:
    rng = np.random.default_rng(0)
    words = [rng.integers(97, 123, size=rng.integers(2, 9)) for _ in range(500)]
    drawn = [np.append(words[i], 32) for i in rng.zipf(1.3, size=options.tokens) % len(words)]
    text = np.concatenate(drawn)[: options.tokens].astype(np.uint32)
    return CellRequest(
        model=extend(
            BASE.initialise(0).to(options.device).eval(),  # type: ignore[arg-type]
            BASE,
            METHODS.parse({"name": "yarn"}, "perf"),
            target=8192,
        ),
        tokenizer=BASE.tokenizer(None),
        base_model=BASE,
        held_out=HeldOut(text),  # type: ignore[arg-type]
        task="prose",
        eval_length=length,
        seed=0,
    )


if __name__ == "__main__":
    main()
