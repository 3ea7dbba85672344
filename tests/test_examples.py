"""The example plug-ins keep the contracts and say what transformers and json say."""

import itertools
import json
import math
import re
import sys
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from hypothesis import given
from hypothesis import strategies as st
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from typer.testing import CliRunner

from lce.cli import app
from lce_core.benchmarks import BENCHMARKS, Prompt
from lce_core.contracts import benchmark_cases, benchmarks, methods
from lce_core.evidence import LLAMA2_7B
from lce_core.methods import METHODS
from lce_core.models import MODELS
from lce_core.registry import Registry
from lce_core.rope import ContextLengths, RopeGeometry
from tests.support.cells import benchmark, request
from tests.support.repository import ROOT

FOLDER = ROOT / "docs" / "examples" / "plugins"
STUDY = FOLDER / "study.yaml"
PLACES: dict[str, Registry[Any]] = {"methods": METHODS, "benchmarks": BENCHMARKS}
TOY = MODELS.load("toy_llama").geometry
PAIR_BYTES = 81
"""Bytes of '"KEY": "VALUE"', comma, newline and blank, counted by hand: 38 + 2 + 38 + 3."""


@pytest.fixture(scope="module", autouse=True)
def _taking_part() -> None:
    for name, registry in PLACES.items():
        registry.add_folder(FOLDER / name)


def test_the_method_keeps_the_contract():
    plugin = METHODS.load("power_ramp")
    assert Path(str(sys.modules[plugin.__module__].__file__)).parent == FOLDER / "methods"
    with torch.no_grad():
        for check, example in itertools.product(methods.CHECKS, plugin.examples):
            check(plugin, example)


@pytest.mark.slow
def test_the_benchmark_keeps_the_contract():
    plugin = BENCHMARKS.load("json_key_value")
    assert Path(str(sys.modules[plugin.__module__].__file__)).parent == FOLDER / "benchmarks"
    tried = benchmark_cases.cases(plugin, dict)
    assert {case.profile for case in tried} == {"clean", "fast"}
    for check, case in itertools.product(benchmarks.checks(plugin), tried):
        if case.profile == "fast" or check is benchmarks.check_form:
            check(case)


def divisors(pairs: int, scale: float, exponent: float, kept: int) -> list[float]:
    """The curve of the docstring, one pair at a time."""
    found = [1.0] * kept
    for place in range(pairs - kept):
        found.append(math.exp(math.log(scale) * (place / (pairs - kept - 1)) ** exponent))
    return found


def ours(geometry: RopeGeometry, target: int, **parameters: Any) -> tuple[Any, float]:
    method = METHODS.parse({"name": "power_ramp", **parameters}, "test")
    lengths = ContextLengths(geometry.trained_context, target, target)
    method.check(geometry, lengths)
    table = method.rope_table(geometry, lengths)
    return table.inv_freq, table.attention_factor


@given(
    exponent=st.floats(0.1, 4), kept=st.integers(0, 14), times=st.sampled_from([1.5, 2, 4, 8, 32])
)
@pytest.mark.parametrize("geometry", [TOY, LLAMA2_7B], ids=["toy", "llama2_7b"])
def test_frequencies_are_those_of_transformers_with_the_same_divisors(
    geometry, exponent, kept, times
):
    pairs, target = geometry.num_pairs, int(times * geometry.trained_context)
    inv_freq, attention = ours(geometry, target, exponent=exponent, kept=kept)
    factors = divisors(pairs, target / geometry.trained_context, exponent, kept)
    config = LlamaConfig(
        hidden_size=geometry.num_heads * geometry.head_dim,
        num_attention_heads=geometry.num_heads,
        max_position_embeddings=target,
        rope_parameters={
            "rope_type": "longrope",
            "rope_theta": geometry.theta,
            "long_factor": factors,
            "short_factor": [1.0] * pairs,
            "original_max_position_embeddings": geometry.trained_context,
        },
    )
    expected, _ = ROPE_INIT_FUNCTIONS["longrope"](config, device="cpu", seq_len=target)
    np.testing.assert_allclose(inv_freq, expected.numpy(), rtol=1e-5)
    assert attention == 1


def shown(prompt: Prompt, tokenizer: Any) -> tuple[dict[str, str], str]:
    """The object and the key that a reader of the prompt finds."""
    text = tokenizer.decode(prompt.ids)
    written, _, question = text.partition("JSON data:\n")[2].partition("\n\nKey: ")
    asked = re.fullmatch(r'"([0-9a-f-]{36})"\nCorresponding value:', question)
    assert asked is not None, question
    return json.loads(written), asked[1]


@pytest.mark.parametrize(("length", "pairs"), [(512, 3), (1024, 10)])
def test_a_prompt_is_a_json_object_that_holds_the_answer_at_its_depth(length, pairs):
    asked: Any = benchmark("json_key_value")
    cell = request(asked, length)
    prompts = asked.prompts(cell)
    places = []
    for prompt in prompts:
        values, key = shown(prompt, cell.tokenizer)
        assert len(values) == pairs
        assert {uuid.UUID(one).version for one in [*values, *values.values()]} == {4}
        assert len({*values, *values.values()}) == 2 * pairs
        assert values[key] == prompt.reference
        places.append(list(values).index(key))
        assert prompt.depth == pytest.approx(100 * (places[-1] + 0.5) / pairs)
        assert length - PAIR_BYTES < len(prompt.ids) + 48 <= length  # no further pair fits
    assert len(prompts) == 100
    taken = sum(len(prompt.ids) for prompt in prompts)
    assert abs(asked.num_tokens("single", length, 0) - taken) <= 0.15 * taken
    counts = np.bincount(places, minlength=pairs)
    assert max(abs(counts - 100 / pairs)) <= 2, "strata of depth give every place its share"


def test_the_example_study_is_planned_with_every_cell_to_do(tmp_path):
    command = ["plan", str(STUDY), "--plugins", str(FOLDER), "--json"]
    done = CliRunner().invoke(app, command, env={"LCE_HOME": str(tmp_path / "home")})
    assert done.exit_code == 0, done.output
    cells = json.loads(done.stdout)["cells"]
    written = yaml.safe_load(STUDY.read_text(encoding="utf-8"))
    lengths = sum(len(entry["lengths"]) for entry in written["benchmarks"])
    tasks = 4 + 2  # perplexity has two domains
    assert lengths == 4
    assert len(cells) == len(written["methods"]) * tasks
    assert {cell["state"] for cell in cells} == {"missing"}
    assert {cell["method"] for cell in cells} == {"none", "yarn", "power_ramp"}
    assert {cell["benchmark"] for cell in cells} == {"perplexity", "json_key_value"}
    assert not (tmp_path / "home").exists()
