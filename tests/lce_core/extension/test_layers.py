"""Methods whose layers differ, against stock layers that hooks give angles and masks."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from lce_core.attention import registered
from lce_core.attention.causal import full_causal
from lce_core.attention.flash import attend_window
from lce_core.attention.inputs import AttentionInputs
from lce_core.attention.placement import Placement
from lce_core.attention.schemes import FullCausal
from lce_core.contracts.tiny_models import BASES, TARGET, TRAINED, Tiny, logits, stock, tokens
from lce_core.errors import SpecError
from lce_core.evaluation.decoding import generate
from lce_core.extension.extended_model import ExtendedModel
from lce_core.extension.extending import extend
from lce_core.methods import (
    METHODS,
    Applied,
    Family,
    LayerAttention,
    Method,
    begins_alike,
    layers_of,
)
from lce_core.models import LanguageModel
from lce_core.rope import ContextLengths, RopeGeometry, RopeTable
from lce_core.training.recomputation import enable
from tests.support.extended_models import over_bases
from tests.support.recorded_operations import OperationRecorder

WINDOW = 9


@dataclass(frozen=True)
class Sliding(FullCausal):
    """The last `window` tokens."""

    window: int

    kernel: ClassVar[str] = f"{__name__}:attend"
    differentiable: ClassVar[bool] = False


def attend(scheme: Sliding, inputs: AttentionInputs) -> torch.Tensor:
    query = inputs.rotation()(inputs.query, slice(inputs.first_query, inputs.length))
    key = inputs.placed(Placement(inputs.table), slice(0, inputs.length))
    return attend_window(query, key, inputs.value, inputs.scaling, scheme.window).output


class Mixed(Method):
    """A layer without rotation, one of another base and temperature, and one with a window."""

    family: ClassVar[Family] = "approximate"
    exact_attention = False
    plugin_name: ClassVar[str] = "mixed"

    windowed: bool = True

    def layer(
        self, index: int, geometry: RopeGeometry, lengths: ContextLengths
    ) -> LayerAttention | None:
        if index == 1:
            return LayerAttention(RopeTable(np.zeros(geometry.num_pairs)))
        if index == 2:
            return LayerAttention(RopeTable(geometry.inv_freq(500.0), 1.2))
        if index == 3 and self.windowed:
            return LayerAttention(RopeTable(geometry.inv_freq()), Sliding(WINDOW))
        return None


def extended(base: LanguageModel, *, windowed: bool = True) -> ExtendedModel:
    return extend(stock(base, layers=4), base, Mixed(windowed=windowed), target=TARGET)


def own_angles(base: LanguageModel, *, windowed: bool = True) -> Any:
    """Stock layers that hooks give the angles, masks and scaling of Mixed."""
    half = exponents(base)
    model = with_angles(base, {1: 0 * half, 2: 500.0**-half}, windowed=windowed)
    model.model.layers[2].self_attn.scaling *= 1.2**2
    return model


def exponents(base: LanguageModel) -> torch.Tensor:
    return torch.arange(0, base.geometry.rotary_dim, 2).double() / base.geometry.rotary_dim


def with_angles(
    base: LanguageModel, frequencies: dict[int, torch.Tensor], *, windowed: bool = False
) -> Any:
    model: Any = stock(base, layers=4)

    def give(index: int) -> Any:
        inv_freq = frequencies.get(index, base.geometry.theta ** -exponents(base))

        def given(_: Any, args: Any, kwargs: Any) -> Any:
            positions = torch.arange(kwargs["hidden_states"].shape[1])
            angles = (positions[:, None] * inv_freq).repeat(1, 2)[None]
            apart = positions[:, None] - positions
            window = WINDOW if index == 3 and windowed else len(positions)
            seen = ((apart >= 0) & (apart < window))[None, None]
            own = {"position_embeddings": (angles.cos(), angles.sin()), "attention_mask": seen}
            return args, kwargs | own

        return given

    for index, layer in enumerate(model.model.layers):
        layer.self_attn.register_forward_pre_hook(give(index), with_kwargs=True)
    return model


@over_bases
@pytest.mark.parametrize(
    ("chosen", "changed"), [([0, 3], (0, 3)), ({"every": 2}, (1, 3)), ({"every": 4}, (3,))]
)
def test_other_layers_than_those_of_a_method_stay_as_in_the_base_model(base, chosen, changed):
    ids = tokens(40)
    divided = base.geometry.theta ** -exponents(base) / 4
    expected = with_angles(base, dict.fromkeys(changed, divided))(ids).logits
    method = METHODS.parse({"name": "pi", "layers": chosen}, "methods[0]")
    model = extend(stock(base, layers=4), base, method, target=TARGET)
    for cuts in ((), (7, 8, 9, 30)):
        torch.testing.assert_close(logits(model, ids, cuts), expected, rtol=1e-9, atol=1e-9)


@over_bases
def test_layers_of_a_method_that_follows_the_length_have_its_frequencies_at_any_length(base):
    every_other = METHODS.parse({"name": "ntk_frozen", "layers": {"every": 2}}, "test")
    plain = METHODS.parse({"name": "none"}, "test")
    short, long = tokens(TRAINED - 4), tokens(40)
    found = extend(stock(base), base, every_other, target=TARGET)
    expected = extend(stock(base), base, plain, target=TARGET)
    torch.testing.assert_close(logits(found, short), logits(expected, short))
    beyond = extend(stock(base), base, every_other, target=TRAINED)
    torch.testing.assert_close(logits(beyond, long), logits(found, long))
    assert (logits(found, long) - logits(expected, long)).abs().max() > 0.1


@over_bases
def test_other_heads_than_those_of_a_method_stay_as_in_the_base_model(base):
    geometry, ids = base.geometry, tokens(40)
    last = geometry.num_kv_heads - 1
    group = geometry.num_heads // geometry.num_kv_heads
    bases = [geometry.theta] * (last * group) + [500.0] * group
    entries = ({"name": "harpe", "bases": bases}, {"name": "pi", "heads": [last], "layers": [1, 2]})
    own = {"name": "abf_single_stage", "base": 500.0, "heads": [last]}
    expected, found, some = (
        extend(stock(base, layers=4), base, METHODS.parse(entry, "methods[0]"), target=TARGET)
        for entry in (entries[0], own, entries[1])
    )
    for cuts in ((), (7, 8, 9, 30)):
        assert torch.equal(logits(found, ids, cuts), logits(expected, ids, cuts))
    plain = RopeTable(geometry.inv_freq())
    first, second, *_ = layers_of(
        Applied(some.method, geometry, ContextLengths(TRAINED, TARGET, TARGET), 4)
    )
    assert (first.table.inv_freq == plain.inv_freq).all()
    assert (second.table.inv_freq[: last * group] == plain.inv_freq).all()
    assert (second.table.inv_freq[last * group :] == plain.inv_freq * TRAINED / TARGET).all()


@over_bases
@pytest.mark.parametrize(("chosen", "changed"), [({}, (0, 1, 2, 3)), ({"layers": [2]}, (2,))])
def test_logit_scale_multiplies_the_queries_of_stock_layers(base, chosen, changed):
    ids, seen = tokens(40), torch.arange(1, 41).double()
    factors = (seen.log() / math.log(TRAINED)).clamp(min=1)[:, None]
    divided = base.geometry.theta ** -exponents(base) / 4
    oracle = with_angles(base, dict.fromkeys(changed, divided))
    for index in changed:
        project = oracle.model.layers[index].self_attn.q_proj
        project.register_forward_hook(lambda _, given, states: states * factors)
    expected = oracle(ids).logits
    method = METHODS.parse({"name": "pi", "logit_scale": "log_length", **chosen}, "methods[0]")
    model = extend(stock(base, layers=4), base, method, target=TARGET)
    for cuts in ((), (7, 8, 9, 30)):
        torch.testing.assert_close(logits(model, ids, cuts), expected, rtol=1e-9, atol=1e-9)


@over_bases
def test_each_layer_has_its_own_frequencies_factor_and_keys(base):
    ids = tokens(40)
    expected = own_angles(base)(ids).logits
    model = extended(base)
    for cuts in ((), (20,), (7, 8, 9, 30), tuple(range(12, 40))):
        torch.testing.assert_close(logits(model, ids, cuts), expected, rtol=1e-9, atol=1e-9)


def test_replayed_and_batched_answers_are_those_of_plain_passes():
    base = BASES[1]
    prompts = [np.asarray(tokens(n, seed=n)[0]) for n in (9, 20, 20, 28)]
    plain, recorded = extended(base), extended(base)
    recorded.replay_tokens(OperationRecorder())
    expected, replayed, alone = (
        generate(model, prompts, max_new_tokens=12, batch_tokens=size)
        for model, size in ((plain, 64), (recorded, 64), (plain, 1))
    )
    assert recorded.replayed_tokens
    for answer, other, another in zip(expected, replayed, alone, strict=True):
        np.testing.assert_array_equal(answer, other)
        np.testing.assert_array_equal(answer, another)
    assert not plain.packs


@pytest.mark.parametrize("checkpointed", [False, True], ids=["plain", "checkpointed"])
def test_gradients_are_those_of_the_stock_layers(checkpointed):
    base = Tiny()
    model = extend(
        stock(base, layers=4).train(), base, Mixed(windowed=False), target=TARGET, training=True
    )
    if checkpointed:
        enable(model.model, "full")
    ids = tokens(24)
    with torch.enable_grad():
        logits(model, ids).square().sum().backward()
    found = {name: weight.grad for name, weight in model.model.named_parameters()}
    other = own_angles(base, windowed=False)
    with torch.enable_grad():
        other(ids).logits.square().sum().backward()
    for name, weight in other.named_parameters():
        torch.testing.assert_close(found[name], weight.grad, rtol=1e-9, atol=1e-9)


def test_layers_that_gradients_cannot_pass_are_refused_in_training():
    base = Tiny()
    model = extend(stock(base, layers=4).train(), base, Mixed(), target=TARGET, training=True)
    with torch.enable_grad(), pytest.raises(SpecError, match="Sliding"):
        logits(model, tokens(8))


def test_learned_frequencies_are_the_same_in_all_layers():
    class Learning(Mixed):
        rotary: ClassVar[str | None] = "lce_core.extension.continuous_rotary:ContinuousRotary"

    with pytest.raises(SpecError, match="learned frequencies"):
        extend(stock(Tiny(), layers=4), Tiny(), Learning(windowed=False), target=TARGET)


def test_trained_frequencies_with_a_scheme_are_refused():
    class Learning(OwnKernel):
        plugin_name: ClassVar[str] = "learning"
        rotary: ClassVar[str | None] = "lce_core.extension.continuous_rotary:ContinuousRotary"

    with pytest.raises(SpecError, match=r"learning\.rotary: got .* the attention scheme Written"):
        extend(stock(Tiny(), layers=4), Tiny(), Learning(), target=TARGET)


def test_a_layer_that_follows_the_length_is_compared():
    class Following(Mixed):
        def layer(
            self, index: int, geometry: RopeGeometry, lengths: ContextLengths
        ) -> LayerAttention | None:
            table = RopeTable(geometry.inv_freq() / lengths.request)
            return LayerAttention(table, FullCausal()) if index == 5 else None

    def alike(num_layers: int) -> bool:
        lengths = ContextLengths(16, 64, 20)
        shorter = Applied(Following(), BASES[0].geometry, lengths, num_layers)
        return begins_alike(shorter, shorter.at(30))

    assert alike(4)
    assert not alike(6)


CALLS: list[tuple[int, tuple[int, int]]] = []


@dataclass(frozen=True)
class Written(FullCausal):
    """Full attention that writes down the layer and the group of heads of each call."""

    kernel: ClassVar[str] = f"{__name__}:write"


def write(scheme: Written, inputs: AttentionInputs) -> torch.Tensor:
    CALLS.append((inputs.layer, inputs.part))
    return full_causal(scheme, inputs)


class OwnKernel(Method):
    family = "approximate"

    def attention(self, geometry: RopeGeometry, lengths: ContextLengths) -> Written:
        return Written()


@over_bases
@pytest.mark.parametrize("groups", [1, 2])
def test_a_kernel_knows_the_layer_it_computes(base, groups, monkeypatch):
    monkeypatch.setattr(registered, "num_parts", lambda inputs: groups)
    CALLS.clear()
    logits(extend(stock(base, layers=3), base, OwnKernel(), target=TARGET), tokens(9), (4,))
    one_pass = [(layer, (part, groups)) for layer in range(3) for part in range(groups)]
    assert 2 * one_pass == CALLS
