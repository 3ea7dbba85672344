"""Loss and gradients against torch's cross_entropy on whole logits in float64."""

from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import cross_entropy

from lce_core.evaluation.cross_entropy import Head, linear_cross_entropy, token_scores
from tests.support.losses import token_nll


def _problem(
    seed: int, tokens: int, width: int, vocabulary: int, bias: bool
) -> tuple[Tensor, Tensor, Tensor | None, Tensor, Tensor]:
    rng = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=rng, dtype=torch.float64).requires_grad_()

    targets = torch.randint(vocabulary, (tokens,), generator=rng)
    weights = torch.rand(tokens, generator=rng) * torch.randint(4, (tokens,), generator=rng)
    head_bias = normal(vocabulary) if bias else None
    return normal(tokens, width), normal(vocabulary, width), head_bias, targets, weights


def _whole_logits_loss(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, weights: Tensor
) -> Tensor:
    logits = torch.nn.functional.linear(hidden, weight, bias)
    return (cross_entropy(logits, targets, reduction="none") * weights).sum()


@settings(max_examples=60)
@given(
    seed=st.integers(0, 1000),
    tokens=st.integers(0, 23),
    width=st.integers(1, 9),
    vocabulary=st.integers(1, 17),
    block=st.integers(1, 30),
    bias=st.booleans(),
)
def test_loss_and_gradients_equal_those_of_whole_logits(
    seed, tokens, width, vocabulary, block, bias
):
    hidden, weight, head_bias, targets, weights = _problem(seed, tokens, width, vocabulary, bias)
    leaves = [leaf for leaf in (hidden, weight, head_bias) if leaf is not None]
    ours = linear_cross_entropy(hidden, Head(weight, head_bias), targets, weights, block)
    theirs = _whole_logits_loss(hidden, weight, head_bias, targets, weights)
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)
    # An upstream factor must reach the gradients, which are made before it is known.
    for got, expected in zip(
        torch.autograd.grad(ours * 0.25, leaves),
        torch.autograd.grad(theirs * 0.25, leaves),
        strict=True,
    ):
        torch.testing.assert_close(got, expected, rtol=1e-10, atol=1e-10)
    nll = token_nll(hidden, Head(weight, head_bias), targets, block)
    torch.testing.assert_close((nll * weights).sum(), theirs.detach(), rtol=1e-10, atol=1e-10)


def test_under_autocast_products_are_bf16_and_sums_fp32():
    hidden, weight, _, targets, weights = _problem(3, 256, 32, 100, bias=False)
    exact = _whole_logits_loss(hidden, weight, None, targets, weights)
    singles = [leaf.detach().float().requires_grad_() for leaf in (hidden, weight)]
    with torch.autocast("cpu", torch.bfloat16):
        loss = linear_cross_entropy(singles[0], Head(singles[1]), targets, weights, block=100)
        nll = token_nll(singles[0], Head(singles[1]), targets, block=100)
    assert (loss.dtype, nll.dtype) == (torch.float32, torch.float32)
    torch.testing.assert_close(loss.double(), exact, rtol=1e-2, atol=0.0)
    expected = torch.autograd.grad(exact, [hidden, weight])
    for got, want in zip(torch.autograd.grad(loss, singles), expected, strict=True):
        assert got.dtype == torch.float32
        # Relative error of the whole gradient; bf16 keeps 8 bits of each factor.
        assert (got.double() - want).norm() / want.norm() < 2e-2


def test_no_tensor_of_tokens_by_vocabulary_is_ever_made():
    tokens, vocabulary, block = 96, 5000, 8
    hidden, weight, _, targets, weights = _problem(4, tokens, 4, vocabulary, bias=False)
    largest = 0

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            nonlocal largest
            out = function(*args, **(kwargs or {}))
            if isinstance(out, Tensor):
                largest = max(largest, out.numel())
            return out

    with Watch():  # type: ignore[no-untyped-call]
        linear_cross_entropy(hidden, Head(weight), targets, weights, block).backward()
    assert largest <= block * vocabulary < tokens * vocabulary


def test_gradients_of_bfloat16_weights_are_summed_in_float32():
    hidden, weight, _, targets, _ = _problem(0, 4096, 4, 8, bias=False)
    low = [tensor.detach().to(torch.bfloat16).requires_grad_() for tensor in (hidden, weight)]
    high = [tensor.detach().double().requires_grad_() for tensor in low]
    ones = torch.ones(len(targets))
    (found,) = torch.autograd.grad(
        linear_cross_entropy(low[0], Head(low[1]), targets, ones, block=4), [low[1]]
    )
    (expected,) = torch.autograd.grad(
        _whole_logits_loss(*high, None, targets, ones.double()), [high[1]]
    )
    # A thousand sums in bfloat16, which stop growing at 256 times what they add, miss it by far.
    assert (found - expected).abs().max() < 0.01 * expected.abs().max()


def test_a_token_that_is_no_text_is_never_the_likeliest_and_keeps_its_probability():
    hidden, weight, _, _, _ = _problem(3, 40, 4, 6, bias=False)
    logits = (hidden @ weight.T).detach()
    own = int(logits.argmax(-1).mode().values)
    among_text = logits.index_fill(1, torch.tensor([own]), -torch.inf).argmax(-1)
    assert not torch.equal(among_text, logits.argmax(-1))
    nll, hits = token_scores(hidden, Head(weight), among_text, block=7, no_text=own)
    assert hits.all()
    expected = cross_entropy(logits, among_text, reduction="none")
    torch.testing.assert_close(nll, expected, rtol=1e-12, atol=1e-12)
