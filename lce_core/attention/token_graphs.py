"""One token's pass through a decoder, recorded once and replayed from CUDA graphs.

A pass launches some forty kernels a layer, each of which takes the GPU less time than the host
needs to launch it. What lies between two attentions is the same kernels on the same addresses for
every token, so it is recorded once for a request: a graph for the end of one layer with the
beginning of the next. Cache and attention, where the number of keys grows, are called between the
graphs as ever. Kernels are the same either way, so numbers are too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from transformers import DynamicCache

from lce_core.attention.cache import PreallocatedCache
from lce_core.attention.rotary import RequestRotary

Attend = Callable[..., tuple[torch.Tensor, None]]
"""Given query, keys and values of a layer: what the layer's registered attention returns."""
Replay = Callable[[], None]


class Recorder(Protocol):
    """Records what a device is told to do."""

    def aside(self) -> AbstractContextManager[None]:
        """Within it all work goes where it can be recorded, in order with what is outside."""

    def begin(self) -> None:
        """Records from here on, and allocates where recordings may."""

    def end(self) -> Replay:
        """Does again what was recorded since `begin`, on the same addresses."""


class CudaRecorder:
    """CUDA graphs; those of one pass share memory, for they are replayed in their order."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)
        self._pool: Any = None
        self._graph: torch.cuda.CUDAGraph | None = None

    @contextmanager
    def aside(self) -> Iterator[None]:
        """A stream of its own: the default one cannot be recorded."""
        # torch takes no pool again whose graphs are all gone, as those of the pass before are.
        self._pool = torch.cuda.graph_pool_handle()
        present = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(present)
        with torch.cuda.stream(self._stream):
            yield
        present.wait_stream(self._stream)

    def begin(self) -> None:
        """Begins a graph; other threads may go on allocating."""
        self._graph = torch.cuda.CUDAGraph()
        self._graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")

    def end(self) -> Replay:
        """Ends the graph."""
        assert self._graph is not None
        graph, self._graph = self._graph, None
        graph.capture_end()
        return graph.replay


class TokenGraphs:
    """Passes of one token of each text of a batch.

    Args:
      decoder: transformers' decoder, with the registered attention of `stock` or `registered`.
      rotary: its rotary module.
      recorder: of the decoder's device.
    """

    def __init__(self, decoder: Any, rotary: RequestRotary, recorder: Recorder) -> None:
        self._decoder, self._rotary, self._recorder = decoder, rotary, recorder
        self._is_warm = False
        self._key: object = None
        self._pass: _Pass | None = None

    def states(self, ids: torch.Tensor, cache: PreallocatedCache) -> torch.Tensor:
        """Last hidden states (batch, 1, hidden_size), as the decoder gives them.

        The first pass of all is not recorded: libraries allocate what they keep for good then.

        Args:
          ids: (batch, 1) the tokens that follow those in the cache.
          cache: has at least one token of each text; extended in place.

        Raises:
          SpecError: the text is longer than the request.
        """
        self._rotary.check_length(cache.get_seq_length() + 1)
        if not self._is_warm:
            with self._recorder.aside():
                decoded = self._decoder(input_ids=ids, past_key_values=cache, use_cache=True)
            self._is_warm = True
            warm: torch.Tensor = decoded.last_hidden_state
            return warm
        key = (len(ids), *self._rotary.what_is_in_force())
        if self._pass is None or self._key != key:
            self._pass = None  # what it holds may be what this one needs
            self._pass, self._key = self._record(ids, cache), key
        return self._pass.of(ids, cache)

    def _record(self, ids: torch.Tensor, cache: PreallocatedCache) -> _Pass:
        positions = ids.new_full(ids.shape, cache.get_seq_length())
        recorded = _Pass(ids.clone(), positions)
        recorded.kept.append(self._rotary.constants(ids.device))
        stand_in = _RecordingCache(cache, recorded, self._recorder)
        with self._recorder.aside(), self._rotary.of_known_positions():
            self._recorder.begin()
            try:
                decoded = self._decoder(
                    input_ids=recorded.ids,
                    position_ids=recorded.positions,
                    past_key_values=stand_in,
                    use_cache=True,
                )
            except BaseException:
                with suppress(RuntimeError):  # a recording that is broken, which is not the cause
                    self._recorder.end()
                raise
            recorded.last = self._recorder.end()
            recorded.result = decoded.last_hidden_state
        return recorded


@dataclass
class _Call:
    """An attention of the recorded pass, and what lies before it."""

    before: Replay
    layer: int
    query: torch.Tensor
    keys: torch.Tensor
    values: torch.Tensor
    attend: Attend
    output: torch.Tensor
    """Where the graph that follows reads it."""


@dataclass
class _Pass:
    ids: torch.Tensor
    positions: torch.Tensor
    calls: list[_Call] = field(default_factory=list)
    kept: list[object] = field(default_factory=list)
    """What graphs read and nobody else may hold."""
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
    """Stands for a layer's keys and values in a pass that is recorded."""

    def __init__(
        self, cache: _RecordingCache, layer: int, keys: torch.Tensor, values: torch.Tensor
    ) -> None:
        self._cache, self._layer, self._keys, self._values = cache, layer, keys, values

    def attend(self, query: torch.Tensor, attend: Attend) -> torch.Tensor:
        """Where the output (batch, 1, heads, head_dim) of `attend` will lie."""
        recorder, calls = self._cache.recorder, self._cache.recorded.calls
        output = query.new_empty(len(query), 1, query.shape[1], self._values.shape[-1])
        own = (self._layer, query, self._keys, self._values, attend, output)
        calls.append(_Call(recorder.end(), *own))
        recorder.begin()
        return output


class _RecordingCache(DynamicCache):
    """Says what another cache has, and takes nothing in."""

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
        """What attention finds in place of keys and values (batch, kv_heads, 1, head_dim)."""
        postponed = Postponed(self, layer_idx, key_states, value_states)
        return postponed, postponed
