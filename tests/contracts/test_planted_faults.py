"""The contract bites: each fault, planted in a copy of a plug-in, is caught by the check named.

A copy without fault passes that same check, so that nothing but the fault is caught. The change of
the source is textual, and has to apply just once.
"""

from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from lce_core.benchmarks import BENCHMARKS
from lce_core.contracts import benchmarks, methods
from lce_core.contracts.benchmark_cases import Case
from lce_core.errors import LceError, SpecError
from lce_core.methods import METHODS
from tests.support.data.fixture_data import fixture_folders
from tests.support.plugin_copies import Change, copied, plugins_removed_after
from tests.support.repository import ROOT

pytestmark = pytest.mark.usefixtures("inference")

OWN_KERNEL = '''

@dataclass(frozen=True)
class Planted(LambdaShaped):
    """The scheme with a fault."""

    kernel: ClassVar[str] = f"{__name__}:attend"


def attend(scheme, inputs):
    from lce_core.attention.windowed import attend as right
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
        "    def rope_table(",
        "    def attention(self, geometry, lengths):\n        return Biased()\n\n"
        "    def rope_table(",
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

FAULTS: dict[str, tuple[Any, ...]] = {
    "frequencies off by 1 %": (
        "pi",
        methods.check_evidence,
        (TABLE, TABLE.replace("inv_freq()", "inv_freq() * 1.01")),
    ),
    "frequencies off by 1 % where nothing is extended": (
        "pi",
        methods.check_unextended_table,
        (TABLE, TABLE.replace("inv_freq()", "inv_freq() * 1.01")),
    ),
    "chosen layers are not the only ones": (
        "pi",
        methods.check_layers,
        (
            "    def rope_table",
            "    def changes(self, index: int) -> bool:\n        return True\n\n    def rope_table",
        ),
    ),
    "chosen heads are not the only ones": (
        "pi",
        methods.check_heads,
        (
            "    def rope_table",
            "    def changes_head(self, index: int) -> bool:\n        return True\n\n"
            "    def rope_table",
        ),
    ),
    "a number of visible keys that no query sees": (
        "string",
        methods.check_logit_scale,
        (
            "    @property\n    def far",
            "    @property\n    def most_keys(self) -> int:\n        return 3\n\n"
            "    @property\n    def far",
        ),
    ),
    "attention leaks one future token": (
        "lm_infinite",
        methods.check_causality,
        *kernel("value = value if first_query else value.roll(-1, 2)"),
    ),
    "cached differs from uncached": (
        "lm_infinite",
        methods.check_cached,
        *kernel("value = value * 1.0001 if first_query else value"),
    ),
    "key-value heads mixed": (
        "lm_infinite",
        methods.check_grouped_heads,
        *kernel("key = key.flip(1) if key.shape[1] < query.shape[1] else key"),
    ),
    "bases handed to the wrong heads": (
        "harpe",
        methods.check_cached,
        ("np.repeat(own, geometry.num_heads // distinct)", "np.tile(own, 4 // distinct)"),
    ),
    "wrong temperature": (
        "yarn",
        methods.check_evidence,
        (
            "return self.table(geometry, self.scale_for(lengths))",
            "right = self.table(geometry, self.scale_for(lengths))\n"
            "        return RopeTable(right.inv_freq, right.attention_factor**0.5)",
        ),
    ),
    "parameter without effect": (
        "pi",
        methods.check_parameters,
        (
            "    def rope_table(",
            '    blend: float = 0.5\n    """Share of nothing."""\n\n    def rope_table(',
        ),
    ),
    "a parameter of texts without effect": (
        "pi",
        methods.check_parameters,
        (
            "    def rope_table(",
            '    kept: tuple[str, ...] = ("a", "b")\n    """Names of nothing."""\n\n'
            "    def rope_table(",
        ),
    ),
    "reach too large": (
        "self_extend",
        methods.check_reach,
        ("* scheme.group + scheme.window", "* scheme.group + scheme.window + scheme.group"),
    ),
    "a table that remembers earlier requests": (
        "dynamic_pi",
        methods.check_pure,
        ("METHOD = ", "LONGEST = [0]\nMETHOD = "),
        (
            "/ self.scale_at(lengths)",
            "/ (LONGEST.append(max(LONGEST[-1], lengths.request)) or LONGEST[-1])",
        ),
    ),
    "a length that matters and is not said to": (
        "dynamic_pi",
        methods.check_length_dependence,
        (
            "    def rope",
            "    def length_dependent(self, *_):\n        return False\n\n    def rope",
        ),
    ),
    "queries one place too near to all earlier chunks": (
        "dca",
        methods.check_attention,
        ("slice(scheme.chunk, scheme.chunk + 1)", "slice(scheme.chunk - 1, scheme.chunk)"),
    ),
    "a key that two parts of the attention count": (
        "dca",
        methods.check_attention,
        ("stop - start], run.start - period", "stop - start], run.start - period + 1"),
    ),
    "a factor of queries that rises one position late": (
        "nope_hybrid",
        methods.check_attention,
        ("(counts / scheme.floor)", "((counts - 1) / scheme.floor)"),
    ),
    "a factor of queries that starts anew with each call": (
        "nope_hybrid",
        methods.check_attention,
        ("(counts / scheme.floor)", "((counts - inputs.first_query) / scheme.floor)"),
    ),
    "another layer without rotation": (
        "nope_hybrid",
        methods.check_evidence,
        ("(index + 1) % self.every", "(index + 2) % self.every"),
    ),
    "other scores in the last layer": (
        "lm_infinite",
        methods.check_attention,
        *kernel("query = query * (1 + (inputs.layer == 3))"),
    ),
    "other scores over a cache": (
        "lm_infinite",
        methods.check_attention,
        *kernel("query = query * (1 + (inputs.held is not None))"),
    ),
    "training positions beyond the target": (
        "pi",
        methods.check_training_positions,
        (
            "    def rope_table(",
            "    def training_positions(self, seed, lengths):\n"
            "        return [5 * token for token in range(lengths.request)]\n\n"
            "    def rope_table(",
        ),
    ),
    "other distances for some frequency pairs": (
        "dpe",
        methods.check_evidence,
        ("// scale for scale in self.scales)", "// scale for scale in self.scales[::-1])"),
    ),
    "a bias of scores called a change of base": ("ntk_aware", methods.check_attention, *BIASED),
    "a family that does not exist": (
        "pi",
        methods.check_form,
        ('family = "interpolation"', 'family = "scaling"'),
    ),
    "attention that follows the length and is not said to": (
        "string",
        methods.check_length_dependence,
        ("        return True\n", "        return False\n"),
    ),
    "a window called exact": (
        "lm_infinite",
        methods.check_distances,
        ("    window: int", "    exact_attention = True\n    window: int"),
    ),
    "evidence of other code than the plug-in's": (
        "pi",
        methods.check_evidence,
        ("METHOD = ", "import math\nfrom lce_core.evidence import calls\n\nMETHOD = "),
        ("EVIDENCE = (", 'EVIDENCE = (calls(math.hypot, 0.0, "zero"),'),
    ),
    "evidence that computes its own formula": (
        "pi",
        methods.check_evidence,
        ("(6.25e-2, 3.51463333e-2)", "(1 / 16, 1e4 ** (-1 / 16) / 16)"),
    ),
    "evidence with an annotation that computes its own formula": (
        "pi",
        methods.check_evidence,
        ("(6.25e-2, 3.51463333e-2)", "(1 / 16, 1e4 ** (-1 / 16) / 16)"),
        ("EVIDENCE = (", "EVIDENCE: tuple[object, ...] = ("),
    ),
    "evidence by keywords that computes its own formula": (
        "pi",
        methods.check_evidence,
        ("(6.25e-2, 3.51463333e-2)", "expected=(1 / 16, 1e4 ** (-1 / 16) / 16)"),
    ),
    "evidence for more pairs than are compared": (
        "pi",
        methods.check_evidence,
        ("(6.25e-2, 3.51463333e-2)", "(6.25e-2, 3.51463333e-2, 1.0)"),
    ),
    "a reference at a commit cut short": (
        "pi",
        methods.check_form,
        ("2ce672dc42b9b5d3e408e8117126c28caeaafcc0", "2ce672d"),
    ),
    "the prompt builder raises": (
        "passkey",
        benchmarks.check_prompts,
        ("    repeated = GARBAGE *", "    raise RuntimeError\n    repeated = GARBAGE *"),
    ),
    "the scorer always gives 1": ("passkey", benchmarks.check_oracle, (SCORER, "return 1.0")),
    "the scorer is swapped": (
        "passkey",
        benchmarks.check_oracle,
        (SCORER, SCORER.replace("==", "!=")),
    ),
    "the seed is ignored": (
        "passkey",
        benchmarks.check_seed,
        ("draws = self.draws(request)", "draws = self.draws(replace(request, seed=0))"),
        ("from collections.abc", "from dataclasses import replace\nfrom collections.abc"),
    ),
    "samples depend on those before": (
        "passkey",
        benchmarks.check_independent,
        ("zip(shares, draws, strict=True)", "zip(shares, draws[:1] * len(draws), strict=True)"),
    ),
    "prompts differ from call to call": (
        "passkey",
        benchmarks.check_deterministic,
        ("draws = self.draws(request)", "draws = [np.random.default_rng() for _ in range(6)]"),
    ),
    "the answer stands beside the needle too": (
        "passkey",
        benchmarks.check_hidden,
        ("parts = INSTRUCTIONS[wording],", 'parts = f"{INSTRUCTIONS[wording]} {key}",'),
    ),
    "the evidence is in no prompt": (
        "babilong",
        benchmarks.check_hidden,
        ("evidence=one.evidence", 'evidence="nowhere to be found"'),
    ),
    "depths run backwards": (
        "passkey",
        benchmarks.check_depths,
        ("                    100 * share,", "                    100 - 100 * share,"),
    ),
    "a control without the sentence that states the answer": (
        "passkey",
        benchmarks.check_controls,
        ("local = FACTS[wording].format(key=key)", "local = FACTS[wording].format(key=0)"),
    ),
    "a plan believes that any held-out text will do": (
        "babilong",
        benchmarks.check_excerpt,
        ("bool:\n        return True\n", "bool:\n        return False\n"),
    ),
    "a plan asks for more held-out text than prompts need": (
        "babilong",
        benchmarks.check_excerpt,
        (
            "    def reads_held_out(",
            "    def excerpt_tokens(self, base_model, task, eval_length):\n"
            "        return eval_length + 9\n\n    def reads_held_out(",
        ),
    ),
    "no room for the answer": (
        "passkey",
        benchmarks.check_prompts,
        ("wording = request.eval_length - NEW_TOKENS", "wording = request.eval_length"),
        ("len(ids) + NEW_TOKENS <=", "len(ids) <="),
    ),
    "answers are stopped too early": (
        "passkey",
        benchmarks.check_early_stop,
        ("return has_complete_integer(answer)", "return len(answer) > 2"),
    ),
    "the unit is wrong": (
        "perplexity",
        benchmarks.check_uniform_model,
        ('unit = "perplexity"', 'unit = "nats"'),
    ),
    "evidence is what the code under test computes": (
        "passkey",
        benchmarks.check_evidence,
        (ROWS, "((n, expected_tokens(n)) for n in (0, 3750, 240_000))"),
    ),
    "evidence restates its formula": (
        "passkey",
        benchmarks.check_evidence,
        (ROWS, "((0, 71 + 24 / 90 * 0), (3750, 71 + 24 / 90 * 3750))"),
    ),
    "evidence is the formula's value and said to be counted": (
        "passkey",
        benchmarks.check_evidence,
        (ROWS, "((0, 72.0), (3750, 1072.125))"),
        ("return 71 + _TOKENS_PER_CHARACTER *", "return 72 + 0.2667 *"),
    ),
    "the unit is unknown": (
        "perplexity",
        benchmarks.check_form,
        ('unit = "perplexity"', 'unit = "bits"'),
    ),
}
"""Name of a plug-in, the check that catches the fault, and changes of the source."""


def copy(name: str, check: Any, folder: Path, changes: Sequence[Change]) -> Any:
    return copied(METHODS if check in methods.CHECKS else BENCHMARKS, name, folder, *changes)


def run_check(plugin: Any, check: Any, root: Path) -> None:
    if check in methods.CHECKS:
        for example in plugin.examples:
            check(plugin, example)
    else:
        check(Case(plugin, plugin.examples[0], "fast", partial(fixture_folders, root=root)))


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_caught(fault, tmp_path):
    name, check, *changes = FAULTS[fault]
    with (
        copy(name, check, tmp_path, changes) as plugin,
        pytest.raises((AssertionError, LceError, RuntimeError)),
    ):
        run_check(plugin, check, tmp_path)


@pytest.mark.parametrize(("name", "check"), dict.fromkeys(fault[:2] for fault in FAULTS.values()))
def test_a_copy_without_fault_is_not_caught(name, check, tmp_path):
    changes = RIGHT_KERNEL if name == "lm_infinite" else ()
    with copy(name, check, tmp_path, changes) as plugin:
        run_check(plugin, check, tmp_path)


@pytest.mark.parametrize("stated", ["3.51463333e-2", "1e4 ** (-1 / 16) / 16"])
def test_evidence_is_read_where_the_plug_in_is_registered(stated, tmp_path):
    own, registered = (ROOT / "lce_core/methods/pi.py").read_text("utf-8").split("METHOD = ")
    package = tmp_path / "packaged_pi"
    package.mkdir()
    (package / "formula.py").write_text(own)
    init = f'"""PI in a package."""\nfrom .formula import *\n\nMETHOD = {registered}'
    (package / "__init__.py").write_text(init.replace("3.51463333e-2", stated))
    with plugins_removed_after():
        METHODS.add_folder(tmp_path)
        plugin = METHODS.load("packaged_pi")
        with nullcontext() if stated[0] == "3" else pytest.raises(AssertionError, match="computed"):
            methods.check_evidence(plugin, {})


def test_parameters_to_try_are_asked_for_on_loading(tmp_path):
    change = ("    scale: float | None = None", "    scale: float | None")
    with pytest.raises(SpecError, match="no EXAMPLES"), copied(METHODS, "pi", tmp_path, change):
        pass
