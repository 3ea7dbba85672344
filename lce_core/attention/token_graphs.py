"""Record the decoder's one-token forward pass once and replay it as CUDA graphs.

A forward pass launches about forty kernels per layer, and the CPU needs longer to launch a kernel
than the GPU to run it. Cache updates and attention, whose number of keys grows, run normally
between the graphs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial, wraps
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import DynamicCache

from lce_core.attention.cache import PreallocatedCache, groups_of
from lce_core.attention.rotary import RequestRotary

Attend = Callable[..., tuple[Tensor, None]]
Replay = Callable[[], None]


def can_record(device: torch.device, dtype: torch.dtype, *, has_experts: bool) -> bool:
    if device.type != "cuda" or not has_experts:
        return device.type == "cuda"
    # Only with these does torch's grouped_mm compute experts on the GPU alone. Otherwise it copies
    # the tokens per expert to the host, which a recording forbids.
    return dtype == torch.bfloat16 and torch.cuda.get_device_capability(device)[0] in (9, 10)


class CudaRecorder:
    """Record CUDA graphs; the graphs of one forward pass replay in order, so they share memory."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)
        self._pool: Any = None
        self._graph: torch.cuda.CUDAGraph | None = None

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Run the block, in which recording is allowed, between all earlier and later work."""
        # The default stream cannot be captured. torch does not reuse a memory pool once all of its
        # graphs are freed, so take a new one.
        self._pool = torch.cuda.graph_pool_handle()
        present = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(present)
        with torch.cuda.stream(self._stream):
            yield
        present.wait_stream(self._stream)

    def begin(self) -> None:
        """Start recording; memory allocated during a recording stays reserved for its replays."""
        # The mode "thread_local" lets other threads continue to allocate memory meanwhile.
        self._graph = torch.cuda.CUDAGraph()
        self._graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")

    def end(self) -> Replay:
        """Stop recording; return a function that runs the same work on the same memory again."""
        assert self._graph is not None
        graph, self._graph = self._graph, None
        graph.capture_end()
        return graph.replay


class TokenGraphs:
    """Decode one token per text by replaying a recorded forward pass."""

    def __init__(self, decoder: Any, rotary: RequestRotary, recorder: CudaRecorder) -> None:
        self._decoder, self._rotary, self._recorder = decoder, rotary, recorder
        self._is_warm = False
        self._key: object = None
        self._pass: _Pass | None = None
        self.replayed_tokens = 0
        """Tokens of replayed passes, which call no module and thus none of its hooks."""

    def states(self, ids: Tensor, cache: PreallocatedCache) -> Tensor:
        """Return the last hidden states (batch, 1, hidden_size) of the next tokens (batch, 1)."""
        self._rotary.check_length(cache.get_seq_length() + 1)
        # The first call is not recorded, because libraries allocate permanent workspaces in it.
        if not self._is_warm:
            with self._recorder.aside():
                decoded = self._decoder(input_ids=ids, past_key_values=cache, use_cache=True)
            self._is_warm = True
            warm: Tensor = decoded.last_hidden_state
            return warm
        key = (len(ids), *self._rotary.table_key())
        if self._pass is None or self._key != key:
            # Free the old recording first: the new one may need its memory.
            self._pass = None
            self._pass, self._key = self._record(ids, cache), key
        else:
            self.replayed_tokens += len(ids)
        return self._pass.of(ids, cache)

    def _record(self, ids: Tensor, cache: PreallocatedCache) -> _Pass:
        ids, positions = ids.clone(), ids.new_full(ids.shape, cache.get_seq_length())
        frequencies = self._rotary.constants(ids.device)
        stand_in = _RecordingCache(cache, self._recorder)
        with self._recorder.aside(), self._rotary.without_position_check():
            self._recorder.begin()
            try:
                decoded = self._decoder(
                    input_ids=ids,
                    position_ids=positions,
                    past_key_values=stand_in,
                    use_cache=True,
                )
            except BaseException:
                # Ending a broken recording raises another error, which would hide the cause.
                with suppress(RuntimeError):
                    self._recorder.end()
                raise
            last, result = self._recorder.end(), decoded.last_hidden_state
        return _Pass(ids, positions, stand_in.calls, last, result, frequencies)


class _Call:
    """One layer's attention in a recorded pass, which runs between two graphs.

    It takes the place of the layer's keys and values during the recording: `over_caches` calls
    `postpone` instead of computing attention.
    """

    before: Replay
    query: Tensor
    attend: Attend
    output: Tensor
    """Buffer (batch, 1, heads, head_dim) for the output of attention; the next graph reads it."""

    def __init__(self, recorder: CudaRecorder, layer: int, keys: Tensor, values: Tensor) -> None:
        self.recorder, self.layer, self.keys, self.values = recorder, layer, keys, values

    def postpone(self, query: Tensor, attend: Attend) -> Tensor:
        self.query, self.attend = query, attend
        self.output = query.new_empty(len(query), 1, query.shape[1], self.values.shape[-1])
        self.before = self.recorder.end()
        self.recorder.begin()
        return self.output

    def replay(self, cache: PreallocatedCache) -> None:
        self.before()
        held = cache.update(self.keys, self.values, self.layer)
        self.output.copy_(self.attend(self.query, *held)[0])


class _Pass(NamedTuple):
    ids: Tensor
    positions: Tensor
    calls: list[_Call]
    last: Replay
    result: Tensor
    frequencies: Tensor
    """The graphs read this tensor, which Python would free without a reference."""

    def of(self, ids: Tensor, cache: PreallocatedCache) -> Tensor:
        self.ids.copy_(ids)
        self.positions.fill_(cache.get_seq_length())
        for call in self.calls:
            call.replay(cache)
        self.last()
        return self.result.clone()


def over_caches(attention: Attend) -> Attend:
    """Decorate an attention function for transformers so that it accepts this package's caches."""

    @wraps(attention)
    def wrapped(
        module: Any,
        query: Tensor,
        key: Any,
        value: Any,
        attention_mask: Tensor | None,
        **kwargs: Any,
    ) -> tuple[Tensor, None]:
        if isinstance(key, tuple):
            parts = [
                wrapped(module, some, layer, layer, attention_mask, **kwargs)[0]
                for some, layer in zip(groups_of(query, key), key, strict=True)
            ]
            return torch.cat(parts), None
        if isinstance(key, _Call):
            attend = partial(wrapped, module, attention_mask=attention_mask, **kwargs)
            return key.postpone(query, attend), None
        return attention(module, query, key, value, attention_mask, **kwargs)

    return wrapped


class _RecordingCache(DynamicCache):
    """Cache for the recording of a pass: has the lengths of `cache` but stores nothing."""

    def __init__(self, cache: PreallocatedCache, recorder: CudaRecorder) -> None:
        super().__init__()
        self.layers, self.recorder = cache.layers, recorder
        self.calls: list[_Call] = []

    def update(
        self,
        key_states: Tensor,
        value_states: Tensor,
        layer_idx: int,
        *_: Any,
        **__: Any,
    ) -> tuple[Any, Any]:
        self.calls.append(_Call(self.recorder, layer_idx, key_states, value_states))
        return self.calls[-1], self.calls[-1]
