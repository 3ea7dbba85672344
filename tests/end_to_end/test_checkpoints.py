"""A trained variant leaves as a stock checkpoint and comes back as published weights.

Strategy: the finished study's yarn is exported, and named as `checkpoint` of another study.
"""

import json
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file

from flows.settings import make_execution
from lce_core.runners import Runner
from lce_core.store.artifacts import Store
from lce_core.study.plan import compile_study
from lce_core.study.study_file import load_study
from tests.support.studies import TINY, lce, write_study

pytestmark = pytest.mark.slow

RELEASED = {**TINY, "study": "released"}


@pytest.fixture(scope="module")
def exported(finished, text, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("exported")
    out = folder / "out" / "yarn"
    told = lce(finished, "export", write_study(folder), str(out), "--select", "method=yarn", *text)
    assert told.startswith(f"{out}\n")
    assert "rope_type yarn" in told
    return out


def checkpoint_of(home: Path) -> Path:
    (found,) = (home / "artifacts" / "finetune").glob("*yarn-tuned*")
    return found


def test_the_exported_folder_is_the_checkpoint_with_its_method(finished, exported):
    names = sorted(path.name for path in exported.iterdir())
    expected = ["README.md", "config.json", "generation_config.json", "model.safetensors"]
    assert names == [*expected, "tokenizer.json", "tokenizer_config.json"]
    written, kept = (
        load_file(folder / "model.safetensors")
        for folder in (exported, checkpoint_of(finished) / "model")
    )
    assert written.keys() == kept.keys()
    assert all(torch.equal(written[name], kept[name]) for name in kept)
    config = json.loads((exported / "config.json").read_text(encoding="utf-8"))
    assert config["rope_parameters"]["factor"] == config["rope_scaling"]["factor"] == 2.0
    assert (config["max_position_embeddings"], config["dtype"]) == (256, "float32")


def test_its_card_says_where_it_comes_from(finished, exported):
    card = (exported / "README.md").read_text(encoding="utf-8")
    record = json.loads((checkpoint_of(finished) / "record.json").read_text(encoding="utf-8"))
    _, front, body = card.split("---\n", 2)
    assert yaml.safe_load(front)["library_name"] == "transformers"
    assert record["fingerprint"] in body
    for part in ("arXiv:2309.00071", "toy_llama", "tiny, variant yarn-tuned", "learning_rate"):
        assert part in body


def test_published_weights_give_the_scores_of_the_run_they_come_from(
    home, exported, text, tmp_path
):
    entry = {"name": "yarn", "checkpoint": "mine"}
    file = Path(write_study(tmp_path, RELEASED, methods=[{"name": "none"}, entry]))
    data = {"text": Path(text[1].partition("=")[2])}
    options = {"home": home, "device": "cpu", "data_folders": data}
    how = make_execution({**options, "model_folders": {"mine": exported}})
    plan = compile_study(load_study(file), data, how.model_folders)
    runner, store = Runner(Store(home), how, lambda event: None), Store(home)
    done = [runner.ensure(step) for step in plan.steps.values()]
    assert done.count("computed") == 4  # the cells of none are those of the other study
    own = {
        (record.axes["benchmark"], record.axes["task"], record.axes["eval_length"]): record
        for _, record in store.records()
        if record.kind == "cell" and "checkpoint" in record.parents and not record.axes["frozen"]
    }
    cells = [cell for cell in plan.cells if cell.method == "yarn" and cell.step]
    assert len(cells) == len(own) == 4
    for cell in cells:
        found = store.record(cell.step)
        expected = own[cell.benchmark, cell.task, cell.eval_length]
        assert found is not None
        assert found.parents.keys() == {"held_out"}
        assert found.result["scores"] == expected.result["scores"]
    told = str(tmp_path / "again")
    named = ("--model-folder", f"mine={exported}")
    lce(home, "export", str(file), told, "--select", "method=yarn", *text, *named)
    weights = [folder / "model.safetensors" for folder in (exported, Path(told))]
    assert weights[0].read_bytes() == weights[1].read_bytes()


def test_a_request_that_is_no_single_finished_variant_is_refused(finished, home, text, tmp_path):
    study, out = write_study(tmp_path), str(tmp_path / "out")
    told = lce(finished, "export", study, out, *text, status=2)
    assert "base_model=toy_llama,variant=yarn-tuned,seed=0" in told
    told = lce(finished, "export", study, out, "--select", "method=self_extend", *text, status=2)
    assert "the attention scheme" in told
    assert not Path(out).exists()
    other = write_study(tmp_path, train_tokens=2 * TINY["train_tokens"])
    told = lce(home, "export", other, out, "--select", "method=yarn", *text, status=2)
    assert "train it with `lce run" in told
