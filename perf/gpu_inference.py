"""Measure prefill and greedy decoding of a random model in bf16, for each method.

Prefill: time of the hidden states of one text, best of three. Its MFU counts only the FLOPs of the
method's own attention. Decoding: time of a long answer minus time of a short answer to the same
prompt, divided by the difference in tokens, which excludes the prompt. Last, after shorter prompts,
the time per token with and without CUDA graphs, if both answers are equal.

    python perf/gpu_inference.py --lengths 16384 32768 --methods none yarn --rows FILE.jsonl
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from gpu_common import add_row, attention_kernels, options, random_llama
from measuring import timed

from lce_core.attention.token_graphs import CudaRecorder
from lce_core.devices import peak_flops, resolve_device
from lce_core.errors import LceError
from lce_core.evaluation.decoding import generate
from lce_core.extension.extended_model import ExtendedModel
from lce_core.extension.extending import extend
from lce_core.methods import METHODS
from lce_core.models import LanguageModel
from lce_core.study.step_cost import evaluation_cost

REPEATS = 3
SHORT_ANSWER, LONG_ANSWER = 2, 34
REPLAYED_AFTER = 2048
"""Tokens of the prompt for CUDA graphs: so few that launching kernels, which graphs avoid, takes
longer than reading keys."""
_GIB = 2**30


def main() -> None:
    """Append one row for each method and length; if a method fails, the row has the reason."""
    chosen = options(__doc__.split("\n")[0])
    base, device = random_llama(chosen.shape), resolve_device("auto")
    model: Any = base.initialise(0, torch.bfloat16).eval()  # type: ignore[call-arg]
    # Twice the longest length: it leaves room for answers and is a multiple of the trained context.
    target = 2 * max(*chosen.lengths, base.geometry.trained_context)
    for length in chosen.lengths:
        for name in chosen.methods:
            if time.monotonic() > chosen.deadline:
                return
            row = {"what": "inference", "model": chosen.shape, "method": name, "length": length}
            try:
                row |= measured(base, model, name, length, target, device)
            except (LceError, torch.OutOfMemoryError) as error:
                row["refused"] = [str(error).splitlines()[0]]
            add_row(chosen.rows, row)
            cleared(device)
    length = min(REPLAYED_AFTER, *chosen.lengths)
    for name in chosen.methods:
        if time.monotonic() > chosen.deadline:
            return
        row = {"what": "replayed", "model": chosen.shape, "method": name, "length": length}
        try:
            row |= replayed(base, model, name, length, target, device)
        except (LceError, RuntimeError) as error:  # RuntimeError: a graph cannot be recorded
            row["refused"] = [str(error).splitlines()[0]]
        add_row(chosen.rows, row)
        cleared(device)


def cleared(device: torch.device) -> None:
    """Free the memory of the previous method."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


@torch.no_grad()
def measured(
    base: LanguageModel,
    model: Any,
    name: str,
    length: int,
    target: int,
    device: torch.device,
) -> dict[str, Any]:
    """Return speed and memory of prefill and of decoding."""
    method = METHODS.parse({"name": name}, "perf/gpu")
    # All methods use the same model: each call of `extend` replaces the previous method.
    extended = extend(model, base, method, target=target)
    ids = np.random.default_rng(1).integers(base.shape.vocab_size, size=length)
    prompt = torch.from_numpy(ids)[None].to(device)
    extended.begin_request(length)
    seconds, memory = best_of(lambda: extended.hidden_states(prompt), device)
    flops = evaluation_cost(base, method, target, length, length).flops
    peak = peak_flops(device, "bf16")
    decoding, held = decoded(extended, ids, device)
    return {
        "prefill_tokens_per_second": round(length / seconds, 1),
        "prefill_mfu": flops / seconds / peak if peak else None,
        "prefill_memory_gib": memory,
        "decode_milliseconds_per_token": round(1000 * decoding, 3),
        "decode_memory_gib": held,
        "kernel": extended.kernel,
        "kernels": attention_kernels(
            lambda: extended.hidden_states(prompt[:, : min(length, 8192)])
        ),
    }


@torch.no_grad()
def replayed(
    base: LanguageModel, model: Any, name: str, length: int, target: int, device: torch.device
) -> dict[str, Any]:
    """Return milliseconds per token without and, on CUDA, with CUDA graphs.

    Raises:
      LceError: if the answer with CUDA graphs differs.
    """
    extended = extend(model, base, METHODS.parse({"name": name}, "perf/gpu"), target=target)
    ids = np.random.default_rng(1).integers(base.shape.vocab_size, size=length)
    request = {"max_new_tokens": LONG_ANSWER, "batch_tokens": length}
    (expected,) = generate(extended, [ids], **request)
    seconds = [decoded(extended, ids, device)[0], None]
    if device.type == "cuda":
        extended.replay_tokens(CudaRecorder(device))
        (answer,) = generate(extended, [ids], **request)
        if not np.array_equal(answer, expected):
            raise LceError(
                "CUDA graphs",
                answer.tolist(),
                f"the answer without CUDA graphs, {expected.tolist()}",
                "do not set token_graphs",
            )
        seconds[1] = decoded(extended, ids, device)[0]
    plain, graphs = (None if one is None else round(1000 * one, 3) for one in seconds)
    return {"plain": plain, "graphs": graphs, "kernel": extended.kernel}


def decoded(
    model: ExtendedModel, ids: np.ndarray, device: torch.device
) -> tuple[float, float | None]:
    """Return the seconds per generated token after a prompt, and the peak memory in GiB."""

    def answer(tokens: int) -> Callable[[], object]:
        return lambda: generate(model, [ids], max_new_tokens=tokens, batch_tokens=len(ids))

    answer(SHORT_ANSWER)()
    short, _ = best_of(answer(SHORT_ANSWER), device, 1)
    long, memory = best_of(answer(LONG_ANSWER), device, 1)
    return (long - short) / (LONG_ANSWER - SHORT_ANSWER), memory


def best_of(
    call: Callable[[], object], device: torch.device, repeats: int = REPEATS
) -> tuple[float, float | None]:
    """Return the shortest wall seconds of a call and the peak GiB of tensors during the calls."""
    cuda = device.type == "cuda"
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    best = min(timed(call).wall for _ in range(repeats))
    held = round(torch.cuda.max_memory_allocated() / _GIB, 2) if cuda else None
    return best, held


if __name__ == "__main__":
    main()
