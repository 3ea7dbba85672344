"""perf/decoding.py on the toy model: what it counts, and that it compares answers and times them.

Counts are exact; times are not looked at.
"""

import json
from pathlib import Path
from typing import Any

import pytest

SIZES = ["--model", "toy_llama", "--layers", "2", "--window", "32", "--threads", "1"]


@pytest.fixture
def script() -> Any:
    import decoding

    return decoding


def run(script: Any, tmp_path: Path, *options: str) -> list[dict[str, Any]]:
    out = tmp_path / "found.json"
    arguments = [*SIZES, *options, "--out", str(out)]
    script.measure("", script.rows, arguments, **script.OPTIONS)
    found: list[dict[str, Any]] = json.loads(out.read_text())["rows"]
    return found


def test_a_token_reads_each_key_and_value_once_and_copies_none(script, tmp_path):
    short, long = (
        run(script, tmp_path, "--length", str(length), "--no-times") for length in (400, 1000)
    )
    for few, many in zip(short, long, strict=True):
        assert many["kernels a layer"] == few["kernels a layer"]
        # What a longer text costs more, so that what every token costs drops out.
        moved = "bytes over keys and values"
        more = (1000 * many[moved] - 400 * few[moved]) / 600
        linear = many["method"] in ("lm_infinite", "streaming_llm")
        assert more == pytest.approx(0 if linear else 1, abs=1e-6)


def test_answers_are_compared_and_every_method_is_timed(script, tmp_path, capsys):
    sizes = ["--length", "300", "--stock-length", "200", "--batch", "2", "--stock-batch", "3"]
    found = run(script, tmp_path, *sizes, "--new-tokens", "3", "--repeats", "1")
    times = [row for row in found if "a step" in row]
    names = [row["a step"] for row in times]
    others = [name for name in script.TIMED if name != "none"]
    assert names == ["generate() against none", *(f"{name} against none" for name in others)]
    assert all(row["time"] > 0 for row in times)
    assert "| generate() against none | 3 | 200 |" in capsys.readouterr().out
