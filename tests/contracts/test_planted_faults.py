"""The contract bites: each fault, planted in a copy of a plug-in, is caught by the check named.

A copy without fault passes that same check, so that nothing but the fault is caught. The change of
the source is textual, and has to apply just once.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from lce_core.benchmarks import BENCHMARKS
from lce_core.contracts import benchmarks, methods
from lce_core.contracts.benchmark_cases import Case
from lce_core.errors import LceError, SpecError
from lce_core.methods import METHODS
from tests.support.data.fixture_data import fixture_folders
from tests.support.plugin_copies import Change, copied

OWN_KERNEL = '''

@dataclass(frozen=True)
class Planted(LambdaShaped):
    """The scheme with a fault."""

    kernel: ClassVar[str] = f"{__name__}:attend"


def attend(scheme, inputs):
    from lce_core.attention.windowed import lambda_shaped as right
    query, key, value, first_query = inputs.query, inputs.key, inputs.value, inputs.first_query
    FAULT
    return right(scheme, replace(inputs, query=query, key=key, value=value))


METHOD = LmInfinite
'''


def kernel(fault: str) -> tuple[Change, ...]:
    """LM-Infinite with a kernel of its own."""
    return (
        ("METHOD = LmInfinite\n", OWN_KERNEL.replace("FAULT", fault)),
        ("return LambdaShaped(", "return Planted("),
        (
            "from pydantic import",
            "from dataclasses import dataclass, replace\nfrom typing import ClassVar\n\n"
            "from pydantic import",
        ),
    )


RIGHT_KERNEL = kernel("pass")
BIASED = (
    (
        "METHOD = NtkAware\n",
        '''

@dataclass(frozen=True)
class Biased(FullCausal):
    """Full attention whose scores fall with the distance, as in ALiBi."""

    kernel: ClassVar[str] = f"{__name__}:attend"


def attend(scheme, inputs):
    import torch

    rotate, shared = inputs.rotation(), inputs.query.shape[1] // inputs.key.shape[1]
    query = rotate(inputs.query, slice(inputs.first_query, inputs.length))
    key = rotate(inputs.key, slice(0, inputs.length)).repeat_interleave(shared, dim=1)
    places = torch.arange(inputs.length)
    apart = places[inputs.first_query :, None] - places
    scores = query @ key.transpose(-1, -2) * inputs.scaling - 0.1 * apart
    weights = scores.masked_fill(apart < 0, -torch.inf).softmax(-1)
    return weights @ inputs.value.repeat_interleave(shared, dim=1)


METHOD = NtkAware
''',
    ),
    (
        "    def check(",
        "    def attention(self, geometry, lengths):\n        return Biased()\n\n    def check(",
    ),
    (
        "from lce_core.evidence import",
        "from dataclasses import dataclass\nfrom typing import ClassVar\n\n"
        "from lce_core.attention.schemes import FullCausal\nfrom lce_core.evidence import",
    ),
)
SCORER = "return float(first_integer(answer) == int(prompt.reference))"
ROWS = "((0, 71), (3750, 1073), (240_000, 64_071))"
TABLE = "RopeTable(geometry.inv_freq() / self.scale_for(lengths))"

METHOD_FAULTS: dict[str, tuple[str, tuple[Change, ...], methods.MethodCheck]] = {
    "frequencies off by 1 %": (
        "pi",
        ((TABLE, TABLE.replace("inv_freq()", "inv_freq() * 1.01")),),
        methods.check_evidence,
    ),
    "frequencies off by 1 % where nothing is extended": (
        "pi",
        ((TABLE, TABLE.replace("inv_freq()", "inv_freq() * 1.01")),),
        methods.check_unextended_table,
    ),
    "attention leaks one future token": (
        "lm_infinite",
        kernel("value = value if first_query else value.roll(-1, 2)"),
        methods.check_causality,
    ),
    "cached differs from uncached": (
        "lm_infinite",
        kernel("value = value * 1.0001 if first_query else value"),
        methods.check_cached,
    ),
    "key-value heads mixed": (
        "lm_infinite",
        kernel("key = key.flip(1) if key.shape[1] < query.shape[1] else key"),
        methods.check_grouped_heads,
    ),
    "bases handed to the wrong heads": (
        "harpe",
        (("np.repeat(own, geometry.num_heads // distinct)", "np.tile(own, 4 // distinct)"),),
        methods.check_cached,
    ),
    "wrong temperature": (
        "yarn",
        (
            (
                "return self.table(geometry, self.scale_for(lengths))",
                "right = self.table(geometry, self.scale_for(lengths))\n"
                "        return RopeTable(right.inv_freq, right.attention_factor**0.5)",
            ),
        ),
        methods.check_evidence,
    ),
    "parameter without effect": (
        "pi",
        (
            (
                "    def rope_table(",
                '    blend: float = 0.5\n    """Share of nothing."""\n\n    def rope_table(',
            ),
        ),
        methods.check_parameters,
    ),
    "reach too large": (
        "self_extend",
        (("* scheme.group + scheme.window", "* scheme.group + scheme.window + scheme.group"),),
        methods.check_reach,
    ),
    "a table that remembers earlier requests": (
        "dynamic_pi",
        (
            ("METHOD = ", "LONGEST = [0]\nMETHOD = "),
            (
                "lengths.request, lengths.trained)",
                "LONGEST.append(max(LONGEST[-1], lengths.request)) or LONGEST[-1],"
                " lengths.trained)",
            ),
        ),
        methods.check_pure,
    ),
    "a length that matters and is not said to": (
        "dynamic_pi",
        (("return lengths.request > lengths.trained", "return False"),),
        methods.check_length_dependence,
    ),
    "queries one place too near to all earlier chunks": (
        "dca",
        (("slice(scheme.chunk, scheme.chunk + 1)", "slice(scheme.chunk - 1, scheme.chunk)"),),
        methods.check_attention,
    ),
    "a key that two parts of the attention count": (
        "dca",
        (
            (
                "stop - start], run.start - period",
                "stop - start], run.start - period + 1",
            ),
        ),
        methods.check_attention,
    ),
    "a factor of queries that rises one position late": (
        "nope_hybrid",
        (("first + 1, inputs.length + 1", "first, inputs.length"),),
        methods.check_attention,
    ),
    "a factor of queries that starts anew with each call": (
        "nope_hybrid",
        (("first + 1, inputs.length + 1", "1, query.shape[2] + 1"),),
        methods.check_attention,
    ),
    "another layer without rotation": (
        "nope_hybrid",
        (("(index + 1) % self.every", "(index + 2) % self.every"),),
        methods.check_evidence,
    ),
    "other distances in the last layer": (
        "string",
        (("scheme.near - scheme.window\n", "scheme.near - scheme.window - (inputs.layer == 3)\n"),),
        methods.check_attention,
    ),
    "other distances over a cache": (
        "string",
        (
            (
                "scheme.near - scheme.window\n",
                "scheme.near - scheme.window - (inputs.held is not None)\n",
            ),
        ),
        methods.check_attention,
    ),
    "training positions beyond the target": (
        "pi",
        (
            (
                "    def rope_table(",
                "    def training_positions(self, seed, lengths):\n"
                "        return [5 * token for token in range(lengths.request)]\n\n"
                "    def rope_table(",
            ),
        ),
        methods.check_training_positions,
    ),
    "other distances for some frequency pairs": (
        "dpe",
        (("for s in self.scales)", "for s in self.scales[::-1])"),),
        methods.check_attention,
    ),
    "a bias of scores called a change of base": ("ntk_aware", BIASED, methods.check_attention),
    "a family that does not exist": (
        "pi",
        (('family = "interpolation"', 'family = "scaling"'),),
        methods.check_form,
    ),
    "attention that follows the length and is not said to": (
        "string",
        (("        return True\n", "        return False\n"),),
        methods.check_length_dependence,
    ),
    "a window called exact": (
        "lm_infinite",
        (("exact_attention = False", "exact_attention = True"),),
        methods.check_distances,
    ),
    "evidence of other code than the plug-in's": (
        "pi",
        (
            ("METHOD = ", "import math\nfrom lce_core.evidence import calls\n\nMETHOD = "),
            ("EVIDENCE = (", 'EVIDENCE = (calls(math.hypot, 0.0, "zero"),'),
        ),
        methods.check_evidence,
    ),
    "evidence that computes its own formula": (
        "pi",
        (("(6.25e-2, 3.51463333e-2)", "(1 / 16, 1e4 ** (-1 / 16) / 16)"),),
        methods.check_evidence,
    ),
    "a reference at a commit cut short": (
        "pi",
        (("2ce672dc42b9b5d3e408e8117126c28caeaafcc0", "2ce672d"),),
        methods.check_form,
    ),
}

BENCHMARK_FAULTS: dict[str, tuple[str, tuple[Change, ...], benchmarks.BenchmarkCheck]] = {
    "the prompt builder raises": (
        "passkey",
        (("    repeated = GARBAGE *", "    raise RuntimeError\n    repeated = GARBAGE *"),),
        benchmarks.check_prompts,
    ),
    "the scorer always gives 1": ("passkey", ((SCORER, "return 1.0"),), benchmarks.check_oracle),
    "the scorer is swapped": (
        "passkey",
        ((SCORER, SCORER.replace("==", "!=")),),
        benchmarks.check_oracle,
    ),
    "the seed is ignored": (
        "passkey",
        (
            ("draws = self.draws(request)", "draws = self.draws(replace(request, seed=0))"),
            ("from collections.abc", "from dataclasses import replace\nfrom collections.abc"),
        ),
        benchmarks.check_seed,
    ),
    "samples depend on those before": (
        "passkey",
        (("zip(shares, draws, strict=True)", "zip(shares, draws[:1] * len(draws), strict=True)"),),
        benchmarks.check_independent,
    ),
    "prompts differ from call to call": (
        "passkey",
        (("draws = self.draws(request)", "draws = [np.random.default_rng() for _ in range(6)]"),),
        benchmarks.check_deterministic,
    ),
    "the answer stands beside the needle too": (
        "passkey",
        (("parts = INSTRUCTIONS[wording],", 'parts = f"{INSTRUCTIONS[wording]} {key}",'),),
        benchmarks.check_hidden,
    ),
    "the evidence is in no prompt": (
        "babilong",
        (("evidence=one.evidence", 'evidence="nowhere to be found"'),),
        benchmarks.check_hidden,
    ),
    "depths run backwards": (
        "passkey",
        (("str(key), 100 * share)", "str(key), 100 - 100 * share)"),),
        benchmarks.check_depths,
    ),
    "a plan believes that any held-out text will do": (
        "babilong",
        (("        return eval_length\n", "        return 0\n"),),
        benchmarks.check_excerpt,
    ),
    "a plan asks for more held-out text than prompts need": (
        "babilong",
        (("        return eval_length\n", "        return eval_length + 9\n"),),
        benchmarks.check_excerpt,
    ),
    "no room for the answer": (
        "passkey",
        (
            ("wording = request.eval_length - NEW_TOKENS", "wording = request.eval_length"),
            ("len(ids) + NEW_TOKENS <=", "len(ids) <="),
        ),
        benchmarks.check_prompts,
    ),
    "answers are stopped too early": (
        "passkey",
        (("return has_complete_integer(answer)", "return len(answer) > 2"),),
        benchmarks.check_early_stop,
    ),
    "the unit is wrong": (
        "perplexity",
        (('ClassVar[Literal["perplexity"]] = "perplexity"', 'ClassVar[str] = "nats"'),),
        benchmarks.check_uniform_model,
    ),
    "evidence is what the code under test computes": (
        "passkey",
        ((ROWS, "((n, expected_tokens(n)) for n in (0, 3750, 240_000))"),),
        benchmarks.check_evidence,
    ),
    "evidence restates its formula": (
        "passkey",
        ((ROWS, "((0, 71 + 24 / 90 * 0), (3750, 71 + 24 / 90 * 3750))"),),
        benchmarks.check_evidence,
    ),
    "evidence is the formula's value and said to be counted": (
        "passkey",
        (
            (ROWS, "((0, 72.0), (3750, 1072.125))"),
            ("return 71 + _TOKENS_PER_CHARACTER *", "return 72 + 0.2667 *"),
        ),
        benchmarks.check_evidence,
    ),
    "the unit is unknown": (
        "perplexity",
        (('ClassVar[Literal["perplexity"]] = "perplexity"', 'ClassVar[str] = "bits"'),),
        benchmarks.check_form,
    ),
}


@pytest.fixture(autouse=True)
def _inference() -> Iterator[None]:
    with torch.no_grad():
        yield


def check_method(plugin: Any, check: methods.MethodCheck) -> None:
    for example in plugin.examples:
        check(plugin, example)


def check_benchmark(plugin: Any, check: benchmarks.BenchmarkCheck, root: Path) -> None:
    data = partial(fixture_folders, root=root)
    case = Case(plugin, plugin.examples[0], "fast", data)
    check(case)


@pytest.mark.parametrize("fault", METHOD_FAULTS)
def test_a_fault_planted_in_a_method_is_caught(fault: str, tmp_path: Path) -> None:
    name, changes, check = METHOD_FAULTS[fault]
    sound = RIGHT_KERNEL if changes[0][0] == RIGHT_KERNEL[0][0] else ()
    with copied(METHODS, name, tmp_path, *sound) as plugin:
        check_method(plugin, check)
    with (
        copied(METHODS, name, tmp_path, *changes) as plugin,
        pytest.raises((AssertionError, LceError)),
    ):
        check_method(plugin, check)


@pytest.mark.parametrize("fault", BENCHMARK_FAULTS)
def test_a_fault_planted_in_a_benchmark_is_caught(fault: str, tmp_path: Path) -> None:
    name, changes, check = BENCHMARK_FAULTS[fault]
    with copied(BENCHMARKS, name, tmp_path) as plugin:
        check_benchmark(plugin, check, tmp_path)
    with (
        copied(BENCHMARKS, name, tmp_path, *changes) as plugin,
        pytest.raises((AssertionError, LceError, RuntimeError)),
    ):
        check_benchmark(plugin, check, tmp_path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("VERSION = 1", ""), "without VERSION"),
        (("    scale: float | None = None", "    scale: float | None"), "no EXAMPLES"),
    ],
    ids=["VERSION missing", "no parameters to try"],
)
def test_a_part_that_is_missing_is_named_on_loading(
    change: Change, words: str, tmp_path: Path
) -> None:
    with copied(METHODS, "pi", tmp_path):
        pass
    with pytest.raises(SpecError, match=words), copied(METHODS, "pi", tmp_path, change):
        pass
