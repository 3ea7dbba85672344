"""Strategy: real processes on this machine. Two launchers with ranks of their own stand for two
machines; one machine with as many processes is their oracle."""

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from lce_core.errors import WorkerLostError
from lce_core.execution import AccelerateConfig
from lce_core.models import MODELS
from lce_core.store.failures import classify
from lce_core.study.plugin_folders import add_plugin_folders
from lce_core.training import launching
from lce_core.training.job import TrainingJob
from lce_core.training.run import run
from tests.lce_core.training.conftest import start
from tests.support.ports import unused_port
from tests.support.process_trees import descendants, left
from tests.support.repository import ROOT
from tests.support.training_jobs import losses, silent, weights

HANGS = '''"""The toy, whose second process stops in its third forward pass."""

import os
import sys
import threading
from itertools import count

import torch.distributed as dist
from torch.nn.modules.module import register_module_forward_pre_hook
from transformers import LlamaModel

from lce_core.models.toy_llama import EVIDENCE, SOURCE, VERSION, ToyLlama

__all__ = ["EVIDENCE", "MODEL", "SOURCE", "VERSION"]


class HangingLlama(ToyLlama):
    def model_post_init(self, context):
        if not dist.is_initialized() or dist.get_rank() == 0:
            return
        passes = count(1)

        def hang(module, _):
            if isinstance(module, LlamaModel) and next(passes) == 3:
                for stream in (sys.stdout, sys.stderr):  # a path, for example
                    os.write(stream.fileno(), b"of\\xff\\n")
                threading.Event().wait()

        register_module_forward_pre_hook(hang)


MODEL = HangingLlama
'''


def _two_machines() -> dict[str, Any]:
    return {
        "num_processes": 2,
        "num_machines": 2,
        "main_process_ip": "127.0.0.1",
        "main_process_port": unused_port(),
    }


@contextlib.contextmanager
def _joined(machines: dict[str, Any]) -> Iterator[subprocess.Popen[bytes]]:
    """Start the second machine as a process."""
    script = (
        "import json, sys; from lce_core.execution import AccelerateConfig;"
        "from lce_core.training.launching import join;"
        "join('lce_core.training.run', AccelerateConfig(**json.loads(sys.argv[1])))"
    )
    rank = json.dumps({**machines, "machine_rank": 1})
    with subprocess.Popen([sys.executable, "-c", script, rank], cwd=ROOT) as process:
        try:
            yield process
        finally:
            process.kill()


def _require_that_nothing_is_left(job: TrainingJob, second: Any, *, kills_driver: bool) -> None:
    """Start an endless job, kill one of the two machines and wait until all processes end."""
    with start(job) as driver:
        while not (job.resume / "loss.jsonl").exists():
            assert driver.poll() is None, "ended before it could be killed"
            time.sleep(0.05)
        launched = [*descendants(driver.pid), *descendants(second.pid)]
        assert len(launched) == 4
        (driver if kills_driver else second).kill()
        assert left(launched) == []
        assert driver.wait() != 0


@pytest.mark.slow
def test_two_machines_train_what_one_machine_trains_until_the_main_one_dies(make_job):
    machines = _two_machines()
    shared: dict[str, Any] = {"processes": 2, "sharding": "shard", "num_steps": 3}
    one, two = make_job(**shared), make_job(**shared, accelerate_config=machines)
    run(one, silent)
    with _joined(machines) as second:
        assert run(two, silent)["processes"] == 2
        assert losses(two) == losses(one)
        for name, tensor in weights(one).items():
            assert torch.equal(tensor, weights(two)[name]), name
        # The second machine joins one run after another.
        endless = make_job(num_steps=1_000_000, processes=2, accelerate_config=machines)
        _require_that_nothing_is_left(endless, second, kills_driver=True)


@pytest.mark.slow
def test_a_second_machine_that_dies_leaves_no_process_on_the_main_one(make_job):
    machines = _two_machines()
    endless = make_job(num_steps=1_000_000, processes=2, accelerate_config=machines)
    with _joined(machines) as second:
        _require_that_nothing_is_left(endless, second, kills_driver=False)


@pytest.mark.slow
def test_a_process_that_hangs_fails_the_step_within_its_timeout(make_job, tmp_path):
    (tmp_path / "plugins" / "models").mkdir(parents=True)
    (tmp_path / "plugins" / "models" / "hanging_llama.py").write_text(HANGS)
    folders = (tmp_path / "plugins",)
    add_plugin_folders(folders)
    job = make_job(
        base_model=MODELS.load("hanging_llama")().identity(),
        plugin_folders=folders,
        processes=2,
        sharding="shard",
        step_timeout_seconds=3.0,
    )
    with pytest.raises(WorkerLostError, match="exchanging tensors") as caught:
        run(job, silent)
    assert classify(caught.value) == "transient"


def test_lines_that_plugins_print_are_no_progress(tmp_path, monkeypatch):
    @contextlib.contextmanager
    def printing(folder: Path, *_: Any) -> Iterator[Any]:
        (folder / "result.json").write_text("{}")
        lines = ["{'rank': 0}\n", '{"rank": 0}\n', "7\n", '{"step": 1, "steps": 2}\n']
        yield SimpleNamespace(stdout=lines, wait=lambda: 0)

    monkeypatch.setattr(launching, "_launcher", printing)
    seen: list[Any] = []
    launching.launch("module", "{}", AccelerateConfig(num_processes=2), seen.append, tmp_path)
    assert seen == [{"step": 1, "steps": 2}]
