"""Strategy: a plain torch loop over whole batches, with the loss from whole logits, is the oracle;
every other way to run the same job (micro-batches, processes, interruptions) must reproduce it."""

import errno
import json
import os
import resource
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from accelerate.utils import GradientAccumulationPlugin
from hypothesis import given
from hypothesis import strategies as st
from torch._inductor.runtime.cache_dir_utils import cache_dir, default_cache_dir, triton_cache_dir
from torch.nn.functional import cross_entropy

from lce_core.data.packing import PackedRows
from lce_core.errors import NonFiniteError, SpecError, StoreError, WorkerLostError
from lce_core.methods import METHODS
from lce_core.recipe import Training
from lce_core.training import trainer
from lce_core.training.checkpoints import Point, find_point, open_point, publish, write_shard
from lce_core.training.run import run
from lce_core.training.schedule import learning_rate, rows_of_step, share
from lce_core.training.trainer import use_private_compile_caches
from tests.lce_core.training.conftest import start
from tests.support.process_trees import descendants, left
from tests.support.training_jobs import (
    BASE,
    ROW_LENGTH,
    ROWS_PER_STEP,
    log,
    losses,
    run_alone,
    silent,
    weights,
)


def test_losses_and_weights_equal_those_of_a_plain_torch_loop(make_job):
    job = make_job(micro_batch_tokens=3 * ROW_LENGTH)
    seen: list[dict[str, Any]] = []
    facts = run(job, seen.append)

    model = BASE.initialise(job.seed)
    settings = job.training
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.95), weight_decay=0.1)
    packed, expected, norms = PackedRows.open(job.rows), [], []
    for step in range(job.num_steps):
        chosen = rows_of_step(job.seed, step, ROWS_PER_STEP, len(packed))
        tokens, factors = map(torch.from_numpy, packed.read(chosen))
        logits = model(tokens).logits[:, :-1].flatten(0, 1)
        nll = cross_entropy(logits, tokens[:, 1:].flatten(), reduction="none")
        factor = factors[:, 1:].flatten()
        loss = (nll * factor).sum() / factor.sum()
        optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), settings.gradient_clip)
        norms.append(norm.item())
        optimizer.param_groups[0]["lr"] = learning_rate(settings, step, job.num_steps)
        optimizer.step()
        expected.append(loss.item())

    assert losses(job) == pytest.approx(expected, abs=1e-5)
    entries = log(job)
    assert [entry["grad_norm"] for entry in entries] == pytest.approx(norms, rel=1e-4)
    assert [entry["step"] for entry in entries] == list(range(1, job.num_steps + 1))
    assert entries[-1]["tokens"] == job.num_steps * ROWS_PER_STEP * ROW_LENGTH
    assert facts["loss"] == seen[-1]["loss"] == entries[-1]["loss"]
    ours = weights(job)
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(ours[name], parameter.detach(), rtol=1e-4, atol=1e-4)


def test_the_average_of_the_weights_is_what_is_saved(make_job):
    plain, averaged = make_job(num_steps=1), make_job({"ema_decay": 0.75}, num_steps=1)
    run(plain, silent)
    run(averaged, silent)
    start, after = dict(BASE.initialise(0).named_parameters()), weights(plain)
    for name, tensor in weights(averaged).items():
        torch.testing.assert_close(tensor, 0.75 * start[name].detach() + 0.25 * after[name])


def test_a_tuned_checkpoint_is_a_stock_model_again(make_job, saved_base):
    method = METHODS.parse({"name": "pi"}, "method")
    changes = {"from_scratch": False, "base_folder": saved_base}
    tuned = make_job(method=method.identity(), target_context=512, **changes)
    stock = make_job(**changes)
    assert run(tuned, silent)["kernel"] == "sdpa"
    run(stock, silent)
    assert losses(tuned)[0] != losses(stock)[0]
    written = [json.loads((job.out / "model/config.json").read_text()) for job in (tuned, stock)]
    assert written[0] == written[1]
    BASE.load(tuned.out / "model", torch.float32)
    assert BASE.tokenizer(tuned.out / "model")("abc")["input_ids"] == [97, 98, 99]


@pytest.mark.slow
def test_a_run_killed_at_any_moment_goes_on_and_ends_the_same(make_job):
    undisturbed = make_job({"ema_decay": 0.9}, num_steps=40)
    run(undisturbed, silent)
    killed = make_job({"ema_decay": 0.9}, num_steps=40, checkpoint_seconds=0.0)
    with start(killed) as process:
        written = killed.resume / "loss.jsonl"
        while not (written.exists() and written.read_text().count("\n") >= 5):
            assert process.poll() is None, "ended before it could be killed"
            time.sleep(0.005)
        process.kill()
    (killed.resume / "writing-point-000000039-0123456789ab").mkdir()
    assert 0 < run(killed, silent)["resumed_from"] < 40
    assert losses(killed) == losses(undisturbed)
    expected = weights(undisturbed)
    for name, tensor in weights(killed).items():
        assert torch.equal(tensor, expected[name]), name


@pytest.mark.usefixtures("every_second")
def test_a_damaged_point_costs_time_and_nothing_else(make_job):
    job = make_job(checkpoint_seconds=0.0)
    run(job, silent)
    before = losses(job)
    (shard,) = job.resume.glob("point-*/shard-*")
    shard.write_bytes(shard.read_bytes()[:1000])
    assert run(job, silent)["resumed_from"] == 0
    assert losses(job) == before


def test_a_point_that_finds_no_room_leaves_the_one_before(tmp_path):
    first, second = Point(tmp_path, 1, 0), Point(tmp_path, 2, 0)
    write_shard(first, 0, 1, {"weights/a": torch.ones(4)})
    publish(first, "run", 1)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(OSError, match="resume point cannot be written") as caught:
            write_shard(second, 0, 1, {"weights/a": torch.ones(4096)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert caught.value.errno == errno.EFBIG
    kept = find_point(tmp_path, "run")
    assert kept == first
    with open_point(kept) as tensors:
        assert torch.equal(tensors.rows("weights/a", slice(0, 4)), torch.ones(4))


@pytest.mark.usefixtures("every_second")
def test_the_point_of_another_run_is_refused(make_job):
    job = make_job(checkpoint_seconds=0.0)
    run(job, silent)
    other = make_job({"learning_rate": 1e-3}, resume=job.resume)
    with pytest.raises(
        StoreError,
        match=r"point-\d+-\w+: got a resume point of the run with hash '[0-9a-f]{64}'; .* remove",
    ):
        run(other, silent)


@pytest.mark.usefixtures("every_second")
def test_a_loss_that_is_not_finite_stops_the_run_and_saves_nothing(make_job):
    job = make_job({"learning_rate": 1e30, "warmup_steps": 0}, checkpoint_seconds=0.0)
    with pytest.raises(
        NonFiniteError, match=r"training step (\d) of 6: got .* point is that of step \d in"
    ):
        run(job, silent)
    assert list(job.out.iterdir()) == []


def test_an_absent_gpu_is_refused(make_job):
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(SpecError, match=r"execution\.device: got cuda"):
        run(make_job(device="cuda"), silent)


@pytest.mark.slow
def test_a_base_model_is_trained_with_the_kernel_of_its_study_or_not_at_all(make_job):
    with pytest.raises(SpecError, match="kernel: got 'flash' on cpu"):
        run(make_job({"kernel": "flash"}), silent)


@pytest.mark.slow
def test_workers_end_when_their_driver_is_killed(make_job):
    job = make_job(num_steps=1_000_000, processes=2)
    with start(job) as driver:
        while not (job.resume / "loss.jsonl").exists():
            assert driver.poll() is None, "ended before it could be killed"
            time.sleep(0.05)
        family = descendants(driver.pid)
        assert len(family) >= 3
        driver.kill()
    assert left(family) == []


@pytest.mark.slow
def test_workers_end_when_their_launcher_is_killed(make_job):
    job = make_job(num_steps=1_000_000, processes=2)
    family: list[int] = []

    def kill_launcher(row: dict[str, Any]) -> None:
        if not family:
            launcher = next(filter(_is_launcher, descendants(os.getpid())))
            family.extend((launcher, *descendants(launcher)))
            os.kill(launcher, signal.SIGKILL)

    with pytest.raises(WorkerLostError, match="exit code -9"):
        run(job, kill_launcher)
    assert len(family) >= 3
    assert left(family) == []


def _is_launcher(pid: int) -> bool:
    """Told from other children of the suite's process."""
    return b"accelerate.commands.launch" in Path(f"/proc/{pid}/cmdline").read_bytes()


@given(
    schedule=st.sampled_from(["constant", "linear", "cosine"]),
    warmup=st.integers(0, 50),
    after=st.integers(1, 200),
    final=st.floats(0, 1),
)
def test_the_rate_rises_to_the_peak_and_then_falls_to_the_final_fraction(
    schedule, warmup, after, final
):
    training = Training(
        learning_rate=2.0,
        tokens_per_step=1,
        warmup_steps=warmup,
        schedule=schedule,
        final_fraction=final,
    )
    steps = warmup + after
    rates = [learning_rate(training, step, steps) for step in range(steps + 1)]
    assert all(0 < rate <= 2.0 for rate in rates[:-1])
    assert rates[max(0, warmup - 1)] == rates[warmup] == 2.0
    assert np.all(np.diff(rates[:warmup]) > 0)
    assert np.all(np.diff(rates[warmup:]) <= 0)
    assert rates[-1] == pytest.approx(2.0 if schedule == "constant" else 2.0 * final)


@given(num_rows=st.integers(1, 40), processes=st.integers(1, 9), micro_rows=st.integers(1, 45))
def test_processes_share_all_rows_in_equally_many_passes(num_rows, processes, micro_rows):
    rows = np.arange(num_rows)
    shares = [share(rows, process, processes, micro_rows) for process in range(processes)]
    assert len({len(batches) for batches in shares}) == 1
    assert max(len(batch) for batches in shares for batch in batches) <= micro_rows
    assert np.array_equal(np.concatenate([np.concatenate(batches) for batches in shares]), rows)


@pytest.mark.parametrize("home", ["new", "open to all", "no folder"])
def test_torch_reads_compiled_code_only_where_no_other_user_can_write(home, tmp_path, monkeypatch):
    for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)  # set first, so that the test's end removes what is set below
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    if home == "open to all":
        (tmp_path / "home" / ".cache" / "lce-torch").mkdir(parents=True, mode=0o777)
    elif home == "no folder":
        (tmp_path / "home").touch()
    use_private_compile_caches()
    assert cache_dir() == triton_cache_dir(0)
    assert Path(cache_dir()).stat().st_mode & 0o777 == 0o700
    assert Path(cache_dir()).is_relative_to(tmp_path)
    assert Path(cache_dir()) != Path(default_cache_dir())
    first = cache_dir()
    use_private_compile_caches()
    assert cache_dir() == first


def epochs(seed: int) -> list[list[int]]:
    """Rows of three epochs of 30, read in steps of 9."""
    rows = np.concatenate([rows_of_step(seed, step, 9, 30) for step in range(10)])
    return rows.reshape(3, 30).tolist()  # type: ignore[no-any-return]


def test_every_epoch_has_an_order_of_its_own():
    orders = [tuple(epoch) for seed in (0, 1) for epoch in epochs(seed)]
    assert all(sorted(order) == list(range(30)) for order in orders)
    assert len(set(orders)) == 6


HOSTILE = {
    "ACCELERATE_MIXED_PRECISION": "bf16",
    "ACCELERATE_DYNAMO_BACKEND": "EAGER",
    "ACCELERATE_USE_FSDP": "true",
    "ACCELERATE_USE_DEEPSPEED": "true",
    "ACCELERATE_USE_MEGATRON_LM": "true",
    "ACCELERATE_USE_PARALLELISM_CONFIG": "true",
    "ACCELERATE_GRADIENT_ACCUMULATION_STEPS": "8",
}


def test_weights_are_those_of_an_empty_environment(make_job, monkeypatch):
    expected = make_job(micro_batch_tokens=128, num_steps=2)  # 4 micro-batches
    run_alone(expected)
    for name, value in HOSTILE.items():
        monkeypatch.setenv(name, value)
    job = make_job(micro_batch_tokens=128, num_steps=2)
    run_alone(job)
    assert [name for name in os.environ if name.startswith("ACCELERATE_")] == []
    found = weights(job)
    assert all(torch.equal(found[name], tensor) for name, tensor in weights(expected).items())


def test_a_version_of_accelerate_that_accumulates_another_number_trains_nothing(
    make_job, monkeypatch
):
    def changed(num_steps: int) -> GradientAccumulationPlugin:
        return GradientAccumulationPlugin(num_steps=num_steps + 1)

    monkeypatch.setattr(trainer, "GradientAccumulationPlugin", changed)
    with pytest.raises(SpecError, match="5 micro-batches a step from Accelerate; expected 4"):
        run_alone(make_job(micro_batch_tokens=128, num_steps=2))
