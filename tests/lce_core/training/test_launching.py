"""Strategy: real processes on this machine; one of them hangs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lce_core.errors import WorkerLostError
from lce_core.models import MODELS
from lce_core.store.failures import classify
from lce_core.study.plugin_folders import add_plugin_folders
from lce_core.training.run import run
from tests.support.training_jobs import silent

HANGS = '''"""The toy, whose second process stops in its third forward pass."""

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
                threading.Event().wait()

        register_module_forward_pre_hook(hang)


MODEL = HangingLlama
'''


@pytest.mark.slow
def test_a_process_that_hangs_fails_the_step_within_its_timeout(
    make_job: Any, tmp_path: Path
) -> None:
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
