"""Record the decoder's one-token forward pass once and replay it as CUDA graphs.

A forward pass launches about forty kernels per layer, and the CPU needs longer to launch a kernel
than the GPU to run it. Between two attention calls, every token runs the same kernels on the same
addresses, recorded once for each batch size and RoPE table. Cache updates and attention, whose
number of keys grows, run normally between the graphs. The numbers are those of normal passes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial, wraps
from typing import Any, Protocol

import torch
from transformers import DynamicCache

from lce_core.attention.cache import PreallocatedCache, groups_of
from lce_core.attention.rotary import RequestRotary

Attend = Callable[..., tuple[torch.Tensor, None]]
Replay = Callable[[], None]


def can_record(device: torch.device, dtype: torch.dtype, *, has_experts: bool) -> bool:
    """Return True if CUDA graphs can record the decoder of a model, with or without experts.

    torch's grouped_mm computes experts on the GPU alone in bf16 with compute capability 9 or 10.
    Otherwise it copies the tokens per expert to the host, which a recording forbids.
    """
    if device.type != "cuda" or not has_experts:
        return device.type == "cuda"
    return dtype == torch.bfloat16 and torch.cuda.get_device_capability(device)[0] in (9, 10)


class Recorder(Protocol):
    """Interface to record a device's operations; CudaRecorder implements it for GPUs."""

    def aside(self) -> AbstractContextManager[None]:
        """Run the block, in which recording is allowed, between all earlier and later work."""

    def begin(self) -> None:
        """Start recording; memory allocated during a recording stays reserved for its replays."""

    def end(self) -> Replay:
        """Stop recording; return a function that runs the same work on the same memory again."""


class CudaRecorder:
    """Record CUDA graphs; the graphs of one forward pass replay in order, so they share memory."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)
        self._pool: Any = None
        self._graph: torch.cuda.CUDAGraph | None = None

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Switch to a separate CUDA stream, because the default stream cannot be captured."""
        # torch does not reuse a memory pool once all of its graphs are freed, so take a new one.
        self._pool = torch.cuda.graph_pool_handle()
        present = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(present)
        with torch.cuda.stream(self._stream):
            yield
        present.wait_stream(self._stream)

    def begin(self) -> None:
        # The mode "thread_local" lets other threads continue to allocate memory meanwhile.
        self._graph = torch.cuda.CUDAGraph()
        self._graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")

    def end(self) -> Replay:
        assert self._graph is not None
        graph, self._graph = self._graph, None
        graph.capture_end()
        return graph.replay


class TokenGraphs:
    """Decode one token per text by replaying a recorded forward pass.

    The pass is recorded again when the batch size or the RoPE table changes. `decoder` needs an
    attention function of `lce_core.attention.registered`.
    """

    def __init__(self, decoder: Any, rotary: RequestRotary, recorder: Recorder) -> None:
        self._decoder, self._rotary, self._recorder = decoder, rotary, recorder
        self._is_warm = False
        self._key: object = None
        self._pass: _Pass | None = None
        self.replayed_tokens = 0
        """Tokens of replayed passes, which call no module and thus none of its hooks."""

    def states(self, ids: torch.Tensor, cache: PreallocatedCache) -> torch.Tensor:
        """Return the last hidden states (batch, 1, hidden_size) of each text's next token.

        `ids` are (batch, 1). The first call is not recorded, because libraries allocate permanent
        workspaces in it. The cache, with at least one token of each text, is extended in place.
        Raises SpecError if texts would become longer than the request.
        """
        self._rotary.check_length(cache.get_seq_length() + 1)
        if not self._is_warm:
            with self._recorder.aside():
                decoded = self._decoder(input_ids=ids, past_key_values=cache, use_cache=True)
            self._is_warm = True
            warm: torch.Tensor = decoded.last_hidden_state
            return warm
        key = (len(ids), *self._rotary.table_key())
        if self._pass is None or self._key != key:
            # Free the old recording first: the new one may need its memory.
            self._pass = None
            self._pass, self._key = self._record(ids, cache), key
        else:
            self.replayed_tokens += len(ids)
        return self._pass.of(ids, cache)

    def _record(self, ids: torch.Tensor, cache: PreallocatedCache) -> _Pass:
        positions = ids.new_full(ids.shape, cache.get_seq_length())
        recorded = _Pass(ids.clone(), positions)
        recorded.kept.append(self._rotary.constants(ids.device))
        stand_in = _RecordingCache(cache, recorded, self._recorder)
        with self._recorder.aside(), self._rotary.without_position_check():
            self._recorder.begin()
            try:
                decoded = self._decoder(
                    input_ids=recorded.ids,
                    position_ids=recorded.positions,
                    past_key_values=stand_in,
                    use_cache=True,
                )
            except BaseException:
                # Ending a broken recording raises another error, which would hide the cause.
                with suppress(RuntimeError):
                    self._recorder.end()
                raise
            recorded.last = self._recorder.end()
            recorded.result = decoded.last_hidden_state
        return recorded


@dataclass
class _Call:
    """One attention call of a recorded pass: its tensors, and the graph to replay before it."""

    before: Replay
    layer: int
    query: torch.Tensor
    keys: torch.Tensor
    values: torch.Tensor
    attend: Attend
    output: torch.Tensor
    """Buffer that receives the output of attention; the next graph reads this buffer."""


@dataclass
class _Pass:
    ids: torch.Tensor
    positions: torch.Tensor
    calls: list[_Call] = field(default_factory=list)
    kept: list[object] = field(default_factory=list)
    """Tensors that the graphs read. Without these references Python would free them."""
    last: Replay | None = None
    result: torch.Tensor | None = None

    def of(self, ids: torch.Tensor, cache: PreallocatedCache) -> torch.Tensor:
        assert self.last is not None
        assert self.result is not None
        self.ids.copy_(ids)
        self.positions.fill_(cache.get_seq_length())
        for call in self.calls:
            call.before()
            held = cache.update(call.keys, call.values, call.layer)
            call.output.copy_(call.attend(call.query, *held)[0])
        self.last()
        return self.result.clone()


class Postponed:
    """Placeholder for a layer's keys and values while a forward pass is recorded.

    `over_caches` calls `attend` instead of computing attention, so one graph ends before the
    attention and the next starts after it.
    """

    def __init__(
        self, cache: _RecordingCache, layer: int, keys: torch.Tensor, values: torch.Tensor
    ) -> None:
        self._cache, self._layer, self._keys, self._values = cache, layer, keys, values

    def attend(self, query: torch.Tensor, attend: Attend) -> torch.Tensor:
        """End the current graph, note this attention call, and start the next graph.

        Returns the buffer (batch, 1, heads, head_dim) into which each replay writes the output.
        """
        recorder, calls = self._cache.recorder, self._cache.recorded.calls
        output = query.new_empty(len(query), 1, query.shape[1], self._values.shape[-1])
        own = (self._layer, query, self._keys, self._values, attend, output)
        calls.append(_Call(recorder.end(), *own))
        recorder.begin()
        return output


def over_caches(attention: Attend) -> Attend:
    """Decorate an attention function for transformers so that it accepts this package's caches.

    `key` may then be a tuple of cache layers (`RaggedCache`), or a `Postponed` during a recording.
    """

    @wraps(attention)
    def wrapped(
        module: Any,
        query: torch.Tensor,
        key: Any,
        value: Any,
        attention_mask: torch.Tensor | None,
        **kwargs: Any,
    ) -> tuple[torch.Tensor, None]:
        if isinstance(key, tuple):
            parts = [
                wrapped(module, some, layer, layer, attention_mask, **kwargs)[0]
                for some, layer in zip(groups_of(query, key), key, strict=True)
            ]
            return torch.cat(parts), None
        if isinstance(key, Postponed):
            attend = partial(wrapped, module, attention_mask=attention_mask, **kwargs)
            return key.attend(query, attend), None
        return attention(module, query, key, value, attention_mask, **kwargs)

    return wrapped


class _RecordingCache(DynamicCache):
    """Cache for the recording of a pass: has the lengths of `cache` but stores nothing."""

    def __init__(self, cache: PreallocatedCache, recorded: _Pass, recorder: Recorder) -> None:
        super().__init__()
        self.layers = cache.layers
        self.recorded, self.recorder = recorded, recorder

    def update(
        self,
        key_states: torch.Tensor,
        value_states: torch.Tensor,
        layer_idx: int,
        *_: Any,
        **__: Any,
    ) -> tuple[Any, Any]:
        # In place of keys and values, so that the recorded graph ends before attention.
        postponed = Postponed(self, layer_idx, key_states, value_states)
        return postponed, postponed
