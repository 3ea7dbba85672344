"""Readings of config.json against tables that the programs themselves computed.

runtimes.json has, by configuration, what vLLM 0.32.0, mlx-lm 0.32.2 and xllamacpp 2026.10.11549
rotated by (docs/runtimes.md): pairs, attention factor and five frequencies of each table, and which
of the first layers has which table. The page's table states the verdicts.
"""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lce.keeping.certifying import LARGEST_DIFFERENCE, certify
from lce_core.errors import DataError, SpecError
from lce_core.export import logits
from lce_core.export.runtimes import READERS, Reading, Stated, certified, read_stated
from tests.support.published_configs import CONFIGS, LLAMA2, ODD, REFUSED, WINDOWED, YARN_2
from tests.support.repository import ROOT

MEASURED = json.loads(Path(__file__).with_name("runtimes.json").read_text(encoding="utf-8"))
ALL = {**CONFIGS, **WINDOWED, **ODD}
PAGE = (ROOT / "docs/runtimes.md").read_text(encoding="utf-8")


def stated(folder: Path, config: dict[str, Any]) -> Stated:
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return read_stated(folder)


@pytest.mark.parametrize("runtime", READERS)
@pytest.mark.parametrize("name", ALL)
def test_a_reading_gives_the_tables_that_the_program_computes(name, runtime, tmp_path):
    model, measured = stated(tmp_path, ALL[name]), MEASURED[name][runtime]
    reading = READERS[runtime][1](model)
    if measured == "transformers":  # whose layers vLLM runs
        assert reading == model.reading
    elif isinstance(measured, str):  # the error that it raised
        assert isinstance(reading, str)
    else:
        assert isinstance(reading, Reading)
        for layer, number in enumerate(measured["layers"] or [0]):
            if (table := measured["tables"][number]) is None:
                assert layer in reading.unrotated
                continue
            plain = {"rope_type": "default", "rope_theta": reading.local_theta}
            slides = bool(measured["layers"]) and layer in reading.sliding
            rope = plain if slides else reading.rope
            found = model.table(replace(reading, rope=rope), model.context)
            pairs, factor, frequencies = table
            chosen = found.inv_freq[sorted({0, pairs // 4, pairs // 2, 3 * pairs // 4, pairs - 1})]
            assert len(found.inv_freq) == pairs
            assert found.attention_factor == pytest.approx(factor, rel=1e-6)
            np.testing.assert_allclose(chosen, frequencies, rtol=1e-5)


@pytest.mark.parametrize("name", ALL)
def test_the_page_states_each_verdict(name, tmp_path):
    model = stated(tmp_path, ALL[name])
    cells = []
    for runtime in READERS:
        found = certified(model, runtime)
        if isinstance(found, str):
            cells.append("fails")
        else:
            cells.append("agrees" if found.field is None else f"`{found.field}`")
    assert f"| {name} | {' | '.join(cells)} |" in PAGE


@pytest.mark.parametrize("name", REFUSED)
def test_the_page_states_why_a_model_is_refused(name, tmp_path):
    with pytest.raises(SpecError) as refused:
        stated(tmp_path, REFUSED[name])
    assert len({*CONFIGS, *WINDOWED, *REFUSED}) == 52
    assert f"| {name} | {refused.value.expected.partition(': ')[2]} |" in PAGE


def test_quantised_weights_change_no_reading(tmp_path):
    plain = stated(tmp_path, LLAMA2).reading
    assert stated(tmp_path, {**LLAMA2, "quantization_config": {"bits": 4}}).reading == plain


def test_the_page_names_the_versions_whose_source_was_read():
    for version, _ in READERS.values():
        assert re.search(rf"\b{re.escape(version)}\b", PAGE)


@pytest.mark.slow
def test_the_command_compares_logits_of_transformers_and_names_who_differs(tmp_path):
    rope = {**YARN_2, "attention_factor": 1.5}
    stated(tmp_path, {**LLAMA2, "max_position_embeddings": 8192, "rope_scaling": rope})
    lines, agree = certify(tmp_path, ["transformers", "llama.cpp"])
    assert not agree
    assert max(map(len, lines)) <= 80
    assert re.match(r"transformers +\S+ +agrees +1\.5 +\d\.\de-0[4-9]$", lines[2])
    assert re.match(r"llama\.cpp +\S+ +differs +1\.06931 +not run$", lines[3])
    assert lines[4].startswith("llama.cpp reads attention_factor differently: ")


def test_a_program_that_nothing_is_compared_with_is_not_said_to_agree(tmp_path):
    stated(tmp_path, ODD["dynamic"])
    lines, agree = certify(tmp_path, ["transformers"])
    assert agree
    assert re.match(r"transformers +\S+ +not run +1 +not run$", lines[2])
    assert lines[3:] == ["transformers not run: rope_scaling (no method extends this model)."]


@pytest.mark.parametrize("name", ["granite-3.3-8b-base", "c4ai-command-r-v01", "gemma-3-1b-it"])
def test_a_base_ten_percent_off_shows_in_the_logits(name, tmp_path, monkeypatch):
    # These families scale scores, states or logits, which could hide a wrong rotation.
    model = stated(tmp_path, CONFIGS[name])
    tiny, file = tmp_path / "tiny", tmp_path / "tiny" / "config.json"
    logits.write_tiny(model, tiny)
    load, right = logits.load_weights, file.read_text(encoding="utf-8")
    theta = json.loads(right)["rope_theta"]

    def wrong(folder: Path, dtype: torch.dtype) -> torch.nn.Module:
        file.write_text(json.dumps({**json.loads(right), "rope_theta": 1.1 * theta}))
        try:
            return load(folder, dtype)
        finally:
            file.write_text(right)

    monkeypatch.setattr(logits, "load_weights", wrong)
    assert logits.difference(model, tiny, "transformers") > 10 * LARGEST_DIFFERENCE


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"model_type": "falcon"}, SpecError, "expected a model type .*through AttentionInterface"),
        ({"model_type": "mine"}, SpecError, "expected a model type .*: cohere, .*, stablelm; name"),
        ({"rope_scaling": {"rope_type": "mine"}}, SpecError, "rope_type: got 'mine'"),
        ({"rope_scaling": {"rope_type": "linear"}}, DataError, "valid values for all keys"),
        ({"rope_scaling": {"rope_type": "dynamic"}}, DataError, "valid values for all keys"),
        ({"rope_scaling": {**YARN_2, "factor": [2.0]}}, DataError, "valid values for all keys"),
        ({"max_position_embeddings": "x"}, DataError, "max_position_embeddings: got 'x'"),
        ({"rope_theta": None}, DataError, "rope_theta"),
    ],
)
def test_a_configuration_without_a_meaning_is_refused(changes, error, message, tmp_path):
    with pytest.raises(error, match=message):
        stated(tmp_path, {**LLAMA2, **changes})


def test_an_unknown_program_is_refused(tmp_path):
    with pytest.raises(SpecError, match=r"--with: got vlm; .* 'vllm'"):
        certify(tmp_path, ["vlm"])
