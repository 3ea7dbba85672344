"""Settings that are read elsewhere: files of `accelerate config`, the browser of reports, paths."""

import os
from pathlib import Path
from typing import Any

import pytest
from accelerate.commands.config.config_args import ClusterConfig
from typer.testing import CliRunner

from flows.settings import BROWSER, browser, home, joined_machine, make_execution, study_path
from lce.cli import app
from lce_core.errors import SpecError

TWO_NODES: dict[str, Any] = {
    "compute_environment": "LOCAL_MACHINE",
    "distributed_type": "FSDP",
    "mixed_precision": "bf16",
    "use_cpu": False,
    "debug": False,
    "num_processes": 16,
    "num_machines": 2,
    "main_process_ip": "10.0.0.1",
    "main_process_port": 29500,
    "same_network": True,
    "fsdp_config": {
        "fsdp_version": 2,
        "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        "fsdp_reshard_after_forward": True,
        "fsdp_offload_params": False,
        "fsdp_activation_checkpointing": False,
        "fsdp_cpu_ram_efficient_loading": True,
        "fsdp_state_dict_type": "SHARDED_STATE_DICT",
    },
}


def test_the_machines_of_a_file_share_a_training_run(tmp_path):
    file = tmp_path / "accelerate.json"
    ClusterConfig(**TWO_NODES).to_json_file(file)
    execution = make_execution({"accelerate_config": file, "device": "cpu"})
    assert (execution.processes, execution.training_processes) == (8, 16)
    assert execution.training_slots == 1
    assert make_execution(execution.model_dump()) == execution
    assert joined_machine(file, 1).machine_rank == 1


@pytest.mark.parametrize(
    ("name", "shown"), [(b"a?b", "'\\?'"), (b"a\\b", r"'\\\\'"), (b"a\xffb", "byte 0xff")]
)
def test_a_home_that_databases_would_misread_is_refused_before_anything_is_written(
    name, shown, tmp_path, monkeypatch
):
    place = tmp_path / os.fsdecode(name) / "home"
    with pytest.raises(SpecError, match=f"LCE_HOME: got .*, a path with {shown}"):
        make_execution({"home": place})
    monkeypatch.setenv("LCE_HOME", str(place))
    with pytest.raises(SpecError, match=f"a path with {shown}"):
        home()
    told = CliRunner().invoke(app, ["doctor"])
    assert isinstance(told.exception, SpecError)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("what", ["data_folders", "model_folders"])
def test_folders_and_studies_whose_paths_are_not_utf8_are_refused(what, tmp_path):
    bad = tmp_path / os.fsdecode(b"caf\xe9")
    with pytest.raises(SpecError, match=rf"{what}\.mine: got .* a path with byte 0xe9"):
        make_execution({"home": tmp_path / "home", what: {"mine": bad}})
    with pytest.raises(SpecError, match=r"study file: got .* a path with byte 0xe9"):
        study_path(f"{bad}.yaml")
    odd = {"mine": tmp_path / "%41 [1]#?*"}
    assert make_execution({"home": tmp_path, what: odd}).model_dump()[what] == odd


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.delenv(BROWSER, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def install(folder: Path, name: str) -> Path:
    path = folder / name
    path.touch(mode=0o755)
    return path


def test_a_browser_that_is_named_goes_before_all_others(folder, monkeypatch):
    install(folder, "chromium")
    own = install(folder, "brave")
    for named in (str(own), "brave", "./brave"):
        monkeypatch.setenv(BROWSER, named)
        assert browser() == own


def test_without_one_the_message_says_what_to_do(folder, monkeypatch):
    (folder / "chromium").touch(mode=0o644)  # no program
    with pytest.raises(SpecError, match=r"no browser in \$PATH.*install the package chromium"):
        browser()
    install(folder, "google-chrome")
    monkeypatch.setenv(BROWSER, "/none/chromium")
    with pytest.raises(SpecError, match=f"{BROWSER}=/none/chromium, which is not a program"):
        browser()
