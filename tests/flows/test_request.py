"""What a command plans with: data that are read once, the last run's file and folders."""

import shutil
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from flows.locking import check_lock, write_lock
from flows.request import as_last_run, compile_request
from flows.settings import make_execution
from flows.work import RunOptions, preflight
from lce.keeping.exporting import export_variant
from lce.keeping.verifying import verify_study
from lce_core.benchmarks._data import _FACTS
from lce_core.errors import SpecError
from lce_core.execution import Execution
from lce_core.study.study_file import load_study
from tests.support.data.fixture_data import fixture_folders
from tests.support.file_events import opened
from tests.support.studies import SMOKE

WITH_DATA: dict[str, Any] = {
    "corpus": {"name": "jsonl_folder", "folder": "text"},
    "base_models": [{"name": "llama2_7b"}],
    "methods": [{"name": "none"}],
    "benchmarks": [
        {"name": "perplexity_documents", "domains": [], "data_sets": ["pg19"], "lengths": [1024]},
        {"name": "longbench", "lengths": [1024, 2048]},
        {"name": "many_shot", "lengths": [4096]},
        {"name": "short_context", "lengths": [4096]},
    ],
}


@pytest.fixture
def execution(tmp_path) -> Execution:
    return make_execution({"home": tmp_path / "home", "device": "cpu"})


def test_the_data_of_a_study_are_read_once_however_often_it_is_planned(tmp_path, monkeypatch):
    monkeypatch.setattr("lce_core.store.file_facts.TICK_SECONDS", 0.02)
    data, file = tmp_path / "data", tmp_path / "study.yaml"
    (data / "text").mkdir(parents=True)
    (data / "text" / "a.jsonl").write_text('{"text": "one"}\n', encoding="utf-8")
    content = SMOKE | WITH_DATA
    file.write_text(yaml.safe_dump(content), encoding="utf-8")
    asked = load_study(file).benchmarks
    sets = {one for entry in asked for task in entry.tasks for one in entry.benchmark.reads(task)}
    folders = {"text": data / "text", **fixture_folders(sets, data)}
    home = tmp_path / "home"
    home.mkdir()
    execution = make_execution({"home": home, "device": "cpu", "data_folders": folders})
    time.sleep(0.05)
    with opened(data) as first:
        plan = compile_request(str(file), execution).plan
    read = {Path(path).relative_to(data).parts[0] for path in first}
    assert read == set(folders) >= {"text", "pg19", "longbench", "trec", "piqa"}
    _FACTS.clear()  # as in another process
    with opened(data) as again:
        assert compile_request(str(file), execution).plan == plan
    assert again == []


def test_a_study_is_planned_with_the_file_and_folders_of_its_last_run(tmp_path, execution):
    text, file = tmp_path / "text", tmp_path / "own.yaml"
    (text / "code").mkdir(parents=True)
    (text / "code" / "a.txt").write_text("A rose is a rose.\n" * 50, encoding="utf-8")
    corpus = {"name": "jsonl_folder", "folder": "text", "domain_names": ["code"]}
    file.write_text(yaml.safe_dump({**SMOKE, "study": "own", "corpus": corpus}), encoding="utf-8")
    plugins = tmp_path / "run=3"
    plugins.mkdir()
    folders = {"data_folders": {"text": text}, "plugin_folders": (plugins,)}
    run = execution.model_copy(update=folders)
    expected = [cell.step and cell.step.id for cell in compile_request(str(file), run).plan.cells]
    assert any(expected)
    assert as_last_run(str(file), execution) == (str(file), execution)
    preflight([str(file)], run, RunOptions())
    for study in (str(file), "own"):
        assert as_last_run(study, execution) == (str(file), run)
        found = compile_request(*as_last_run(study, execution)).plan
        assert [cell.step and cell.step.id for cell in found.cells] == expected
    (work,) = preflight(["own"], execution, RunOptions())
    assert [cell.step and cell.step.id for cell in work.request.plan.cells] == expected
    assert write_lock("own", execution, None) == tmp_path / "study.lock"
    assert check_lock("own", execution, None)
    for command in (
        partial(export_variant, out=tmp_path / "out", length=None, precision=None),
        partial(verify_study, sample="1", seed=0, tolerance=0.0),
    ):
        with pytest.raises(SpecError, match=r"undamaged checkpoint|no done cell"):
            command("own", execution, select="variant=none")
    other = execution.model_copy(update={"data_folders": {"text": tmp_path}})
    assert as_last_run("own", other) == (str(file), other)  # folders that the user names
    shutil.rmtree(text)
    shutil.rmtree(plugins)
    assert as_last_run("own", execution) == (str(file), execution)  # folders that exist no more


def test_studies_of_one_command_share_their_data_folders(tmp_path):
    folders, files = {}, []
    smoke = {key: value for key, value in SMOKE.items() if key != "expects"}
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.txt").write_text("A rose is a rose.\n" * 50, encoding="utf-8")
        folders[f"text_{name}"] = tmp_path / name
        corpus = {"name": "text_folder", "folder": f"text_{name}", "domain_names": [name]}
        file = tmp_path / f"{name}.yaml"
        benchmarks = [{"name": "passkey", "profile": "tiny", "lengths": [64]}]
        changes = {"study": name, "corpus": corpus, "benchmarks": benchmarks}
        file.write_text(yaml.safe_dump({**smoke, **changes}), encoding="utf-8")
        files.append(str(file))
    execution = make_execution({"home": tmp_path, "device": "cpu", "data_folders": folders})
    with pytest.raises(SpecError, match="--data-folder: got text_two="):
        compile_request(files[0], execution)
    assert compile_request(files[0], execution, files).execution is execution
    bare = execution.model_copy(update={"data_folders": {}})
    for studies, how in ((files, execution), (["one", "two"], bare)):
        works = preflight(studies, how, RunOptions())
        assert [work.request.execution.data_folders for work in works] == [folders] * 2
        for name, work in zip(("one", "two"), works, strict=True):
            alone = compile_request(*as_last_run(name, bare))
            assert alone.execution.data_folders == {f"text_{name}": tmp_path / name}
            assert alone.plan == work.request.plan
    for name, file in zip(("one", "two"), files, strict=True):
        own = {f"text_{name}": tmp_path / name, "pg19": tmp_path / name}
        preflight([file], bare.model_copy(update={"data_folders": own}), RunOptions())
    with pytest.raises(SpecError, match=r"--data-folder: got pg19=.*one and pg19=.*two"):
        preflight(["one", "two"], bare, RunOptions())
