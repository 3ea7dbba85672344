"""Measure prefill and greedy decoding of a random model in bf16, for each method.

It measures prefill (time of the hidden states of one text, best of three; its MFU counts only
the FLOPs of the method's own attention) and decoding (time of a long answer minus time of a short
answer to the same prompt, divided by the difference in tokens, which excludes the prompt).
With --token-graphs it measures decoding without and with CUDA graphs; both answers must be equal.

    python perf/gpu_inference.py --lengths 16384 --methods none yarn --rows FILE.jsonl
"""

import gc
import sys
from argparse import Namespace
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from gpu_common import Measurement, gib, random_llama, section
from measuring import timed
from numpy.typing import NDArray

from lce_core.attention.token_graphs import CudaRecorder
from lce_core.devices import peak_flops, peak_memory, resolve_device
from lce_core.evaluation.decoding import generate
from lce_core.extension.extended_model import ExtendedModel
from lce_core.extension.extending import extend
from lce_core.extension.kernels import KernelWatch
from lce_core.methods import METHODS, Method
from lce_core.study.cost import evaluation_cost
from tests.support.recorded_operations import OperationRecorder

REPEATS = 3
SHORT_ANSWER, LONG_ANSWER = 2, 34


def measurements(options: Namespace) -> Iterator[Measurement]:
    bench = Bench(options.shape, max(options.lengths))
    what = "token-graphs" if options.token_graphs else "speed"
    measure = bench.token_graphs if options.token_graphs else bench.speed
    for length in options.lengths:
        for method in options.methods:
            row = {"what": what, "method": method, "length": length}
            yield row, partial(measure, method, length)
            gc.collect()
            torch.cuda.empty_cache()


class Bench:
    """A model with random weights, which all methods share, for texts of up to `longest` tokens."""

    def __init__(self, shape: str, longest: int) -> None:
        self.base, self.device = random_llama(shape), resolve_device("auto")
        self._model: Any = self.base.initialise(0, torch.bfloat16).eval()  # type: ignore[call-arg]
        # Leave room for answers; some methods need a multiple of the trained context.
        self._target = 2 * max(longest, self.base.geometry.trained_context)

    def _extended(self, name: str) -> tuple[Method, ExtendedModel]:
        # `extend` replaces the method that the model had before.
        method = METHODS.parse({"name": name}, "perf/gpu")
        return method, extend(self._model, self.base, method, target=self._target)

    def _text(self, length: int) -> NDArray[np.int64]:
        return np.random.default_rng(1).integers(self.base.shape.vocab_size, size=length)

    @torch.no_grad()
    def speed(self, name: str, length: int) -> dict[str, Any]:
        """Return speed and memory of prefill and of decoding."""
        method, extended = self._extended(name)
        ids = self._text(length)
        prompt = torch.from_numpy(ids)[None].to(self.device)
        extended.begin_request(length)
        with KernelWatch() as watch:
            extended.hidden_states(prompt)
        peak_memory(self.device)  # starts to count again
        seconds = min(timed(lambda: extended.hidden_states(prompt)).wall for _ in range(REPEATS))
        memory = peak_memory(self.device)
        flops = evaluation_cost(self.base, method, self._target, length, length).flops
        peak = peak_flops(self.device, "bf16")
        decoding = decoded(extended, ids)
        return {
            "prefill_tokens_per_second": round(length / seconds, 1),
            "prefill_mfu": flops / seconds / peak if peak else None,
            "prefill_memory_gib": gib(memory),
            "decode_milliseconds_per_token": decoding,
            "decode_memory_gib": gib(peak_memory(self.device)),
            "kernel": watch.names(),
        }

    @torch.no_grad()
    def token_graphs(self, name: str, length: int) -> dict[str, Any]:
        """Return milliseconds per token without and with recorded passes; answers must be equal."""
        _, extended = self._extended(name)
        ids = self._text(length)
        expected, plain = answer(extended, ids, LONG_ANSWER), decoded(extended, ids)
        # On a CPU, the tests' stand-in repeats the operations.
        is_cuda = self.device.type == "cuda"
        extended.replay_tokens(CudaRecorder(self.device) if is_cuda else OperationRecorder())
        found, graphs = answer(extended, ids, LONG_ANSWER), decoded(extended, ids)
        assert np.array_equal(found, expected), f"with graphs {found}, without {expected}"
        assert extended.replayed_tokens, "no token was replayed"
        return {"milliseconds_per_token": plain, "milliseconds_with_graphs": graphs}


def answer(model: ExtendedModel, ids: NDArray[np.int64], tokens: int) -> NDArray[np.int64]:
    (found,) = generate(model, [ids], max_new_tokens=tokens, batch_tokens=len(ids))
    return found


def decoded(model: ExtendedModel, ids: NDArray[np.int64]) -> float:
    """Return the milliseconds per generated token after a prompt."""
    answer(model, ids, SHORT_ANSWER)
    long, short = (
        timed(partial(answer, model, ids, tokens)).wall for tokens in (LONG_ANSWER, SHORT_ANSWER)
    )
    return round(1000 * (long - short) / (LONG_ANSWER - SHORT_ANSWER), 3)


if __name__ == "__main__":
    sys.exit(section(__doc__, measurements, token_graphs=False, methods=("none",)))
