"""The whole pipeline by its command line: real Prefect server, workers, training, MLflow, DuckDB.

One small study is run once; each test disturbs a copy of its store and looks at what a rerun does.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from catalog.queries import logical_digest, run_query
from flows.settings import STUDIES
from lce_core.store.artifacts import Store
from tasks import tracking
from tests.support.repository import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

STUDY: dict[str, Any] = yaml.safe_load((STUDIES / "smoke.yaml").read_text(encoding="utf-8"))
STUDY |= {"study": "tiny", "base_models": [{"name": "toy_llama", "steps": 120}]}
LCE = [sys.executable, "-c", "from flows.cli import main; main()"]
SCORES = (
    "SELECT base_model, method, frozen, seed, benchmark, task, metric, eval_length, value, ci_low,"
    " ci_high, num_samples FROM scores ORDER BY ALL"
)


def environment(home: Path, marker: str = "") -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PREFECT_", "LCE_"))}
    return {**kept, "LCE_HOME": str(home), "LCE_TEST_MARKER": marker, "CUDA_VISIBLE_DEVICES": ""}


def lce(home: Path, *arguments: str, status: int = 0) -> str:
    answer = subprocess.run(
        [*LCE, *arguments], env=environment(home), capture_output=True, text=True, timeout=500
    )
    assert answer.returncode == status, answer.stdout + answer.stderr
    return answer.stdout + answer.stderr


def computed(output: str) -> int:
    found = re.search(r"(\d+) steps computed", output)
    assert found, output
    return int(found[1])


def write_study(folder: Path, **changes: Any) -> str:
    path = folder / f"study-{uuid.uuid4().hex[:6]}.yaml"
    path.write_text(yaml.safe_dump({**STUDY, **changes}), encoding="utf-8")
    return str(path)


def scores(home: Path) -> list[tuple[Any, ...]]:
    return run_query(home / "catalog.duckdb", SCORES)[1]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home of the study, run once without disturbance."""
    folder = tmp_path_factory.mktemp("finished")
    output = lce(folder / "home", "run", write_study(folder))
    assert computed(output) == 17
    return folder / "home"


@pytest.fixture
def home(finished: Path, tmp_path: Path) -> Path:
    """A copy of the finished home, to be disturbed."""
    return shutil.copytree(finished, tmp_path / "home")


def test_a_second_run_computes_nothing_and_leaves_the_catalog_as_it_was(
    home: Path, tmp_path: Path
) -> None:
    before = logical_digest(home / "catalog.duckdb"), tracking.logical_digest(home)
    assert computed(lce(home, "run", write_study(tmp_path))) == 0
    assert (logical_digest(home / "catalog.duckdb"), tracking.logical_digest(home)) == before


def test_costs_are_predicted_within_15_per_cent_of_what_cells_take(finished: Path) -> None:
    asked = "SELECT predicted_tokens, tokens, predicted_flops, flops FROM cells"
    _, rows = run_query(finished / "catalog.duckdb", asked)
    assert len(rows) == 12
    for predicted_tokens, tokens, predicted_flops, flops in rows:
        assert predicted_tokens == pytest.approx(tokens, rel=0.15)
        assert predicted_flops == pytest.approx(flops, rel=0.15)


def test_another_length_runs_only_its_cells(home: Path, tmp_path: Path) -> None:
    perplexity, passkey = STUDY["benchmarks"]
    longer = write_study(tmp_path, benchmarks=[perplexity, {**passkey, "lengths": [128, 256, 384]}])
    assert computed(lce(home, "run", longer)) == 3
    _, rows = run_query(home / "catalog.duckdb", "SELECT DISTINCT eval_length FROM scores")
    assert {length for (length,) in rows} == {128, 256, 384}


def test_another_training_value_runs_its_dependents_and_the_plan_says_why(
    home: Path, tmp_path: Path
) -> None:
    changed = write_study(tmp_path, training={**STUDY["training"], "learning_rate": 0.001})
    shown = lce(home, "plan", changed)
    assert "4 x to do: changed: checkpoint.training.learning_rate: 0.0005 -> 0.001" in shown
    assert computed(lce(home, "run", changed)) == 5  # the fine-tuned checkpoint and its four cells


@pytest.mark.parametrize("damage", ["flipped byte", "deleted file", "deleted artifact"])
def test_damage_is_noticed_and_only_that_is_redone(
    home: Path, tmp_path: Path, finished: Path, damage: str
) -> None:
    checkpoint = next((home / "artifacts" / "finetune").iterdir())
    weights = checkpoint / "model" / "model.safetensors"
    if damage == "flipped byte":
        content = bytearray(weights.read_bytes())
        content[-1] ^= 1
        weights.write_bytes(content)
    elif damage == "deleted file":
        weights.unlink()
    else:
        shutil.rmtree(checkpoint)
    assert computed(lce(home, "run", write_study(tmp_path))) == 1
    assert scores(home) == scores(finished)


def survivors(marker: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            mine = process.environ().get("LCE_TEST_MARKER") == marker
            if mine and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def wait_until(condition: Callable[[], object], seconds: float = 300) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize("moment", ["training", "evaluation"])
def test_kill_9_loses_nothing_and_leaves_no_process(
    finished: Path, tmp_path: Path, moment: str
) -> None:
    home, study, marker = tmp_path / "home", write_study(tmp_path), uuid.uuid4().hex
    how = tmp_path / "how.yaml"
    how.write_text("checkpoint_seconds: 0.2\n", encoding="utf-8")
    with subprocess.Popen(
        [*LCE, "run", study, "--execution", str(how)],
        env=environment(home, marker),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as driver:
        if moment == "training":
            wait_until(lambda: list((home / "progress").glob("*/point-*/point.json")))
        else:
            wait_until(lambda: list((home / "artifacts" / "cell").glob("toy*")))
        driver.send_signal(signal.SIGKILL)
    wait_until(lambda: not survivors(marker), 30)
    done = len(list(Store(home).records()))
    assert done < 17
    output = lce(home, "run", study, "--execution", str(how))
    assert computed(output) == 17 - done
    assert scores(home) == scores(finished)
    assert not list((home / "artifacts").glob("*/.attempt*"))
    if moment == "training":
        _, record = next(r for r in Store(home).records() if r[1].kind == "base")
        assert record.result["resumed_from"] > 0
    assert not survivors(marker)


def test_two_runs_at_once_compute_each_step_once(finished: Path, tmp_path: Path) -> None:
    home, study = tmp_path / "home", write_study(tmp_path)
    runs = [
        subprocess.Popen(
            [*LCE, "run", study],
            env=environment(home),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for _ in range(2)
    ]
    outputs = [run.communicate(timeout=500)[0] for run in runs]
    assert [run.returncode for run in runs] == [0, 0], outputs
    assert sum(computed(output) for output in outputs) == 17
    assert scores(home) == scores(finished)


def test_a_report_is_one_file_and_an_unknown_study_is_refused(home: Path, tmp_path: Path) -> None:
    printed = lce(home, "report", "tiny").strip()
    assert Path(printed) == home / "reports" / "tiny.html"
    assert "self_extend" in Path(printed).read_text(encoding="utf-8")
    lce(home, "report", "tiny", "--out", str(tmp_path / "own.html"))
    assert (tmp_path / "own.html").read_bytes() == Path(printed).read_bytes()
    assert "tinny" in lce(home, "report", "tinny", "--out", str(tmp_path / "no.html"), status=2)
    assert not (tmp_path / "no.html").exists()


def test_catalog_and_mlflow_are_rebuilt_equal(home: Path) -> None:
    before = logical_digest(home / "catalog.duckdb"), tracking.logical_digest(home)
    (home / "catalog.duckdb").unlink()
    shutil.rmtree(home / "mlflow")
    lce(home, "rebuild", "catalog")
    lce(home, "rebuild", "mlflow")
    assert (logical_digest(home / "catalog.duckdb"), tracking.logical_digest(home)) == before


def test_a_study_without_its_data_is_refused_and_keeps_its_results(
    home: Path, tmp_path: Path
) -> None:
    before = logical_digest(home / "catalog.duckdb")
    study = write_study(tmp_path, corpus={"name": "jsonl_folder"})
    output = lce(home, "run", study, status=2)
    assert "no folder is named 'text'" in output
    assert "--data-folder text=FOLDER" in output
    assert logical_digest(home / "catalog.duckdb") == before


def test_another_file_of_the_same_study_name_is_pointed_out(home: Path, tmp_path: Path) -> None:
    study = write_study(tmp_path, seeds=[0])
    assert "was last planned from" in lce(home, "run", study)
    assert "was last planned from" not in lce(home, "run", study)


def test_ctrl_c_ends_with_one_line_and_no_process(tmp_path: Path) -> None:
    home, marker = tmp_path / "home", uuid.uuid4().hex
    run = subprocess.Popen(
        [*LCE, "run", write_study(tmp_path)],
        env=environment(home, marker),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # A suite started in the background ignores SIGINT, and its children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    wait_until(lambda: list((home / "artifacts").glob("rows/local*")))
    run.send_signal(signal.SIGINT)
    output = run.communicate(timeout=60)[0]
    assert run.returncode == 130
    assert "interrupted; the same command goes on" in output
    assert "Traceback" not in output
    wait_until(lambda: not survivors(marker), 30)


def test_cells_that_cannot_be_are_rows_with_their_reason(home: Path, tmp_path: Path) -> None:
    methods = [
        *STUDY["methods"],
        {"name": "self_extend", "window": 64, "group": 2, "label": "se_2"},
    ]
    output = lce(home, "run", write_study(tmp_path, methods=methods))
    assert "2 unavailable" in output
    asked = "SELECT DISTINCT reason FROM cells WHERE status = 'unavailable' AND method = 'se_2'"
    _, rows = run_query(home / "catalog.duckdb", asked)
    assert rows == [("eval length 256 is beyond the 192 tokens se_2 reaches",)]


def test_a_diverging_run_fails_its_cells_and_nothing_else(home: Path, tmp_path: Path) -> None:
    wild = {**STUDY["training"], "learning_rate": 1.0e30, "gradient_clip": 1.0e30}
    study = write_study(tmp_path, training=wild)
    output = lce(home, "run", study, status=1)
    assert "non_finite" in output
    assert "finetune toy_llama-yarn-tuned-s0" in output
    assert "Traceback" not in output
    assert "and 3 units that wait for these" in output
    asked = "SELECT status, count(*), max(reason) FROM cells GROUP BY ALL ORDER BY ALL"
    done, blocked = run_query(home / "catalog.duckdb", asked)[1]
    assert (done[:2], blocked[:2]) == (("done", 8), ("missing", 4))
    assert re.match(r"finetune \w+ failed: non_finite: .*step", blocked[2])
    began = time.monotonic()
    again = lce(home, "run", study, status=1)  # permanent failures are not tried again, but named
    assert "finetune toy_llama-yarn-tuned-s0: non_finite" in again
    assert "--retry-failed" in again
    assert time.monotonic() - began < 120
    assert "4 failed" in lce(home, "status", study)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "toyy"], "write 'toy'"),
        (["run", "toy", "--select", "method=yran"], "write 'yarn'"),
        (["plan", "absent.yaml"], "no such file"),
        (["run", "toy", "--model-folder", "toy_llama"], "NAME=FOLDER"),
        (["run", "toy", "--device", "tpu"], "device"),
        (["run", "toy", "--device", "cuda"], "no GPU is visible"),
        (["run", "toy", "--plugins", "absent"], "which is no folder"),
        (["run", "toy", "--slots", "0"], "slots"),
        (["sql", "SELECT 1"], "lce run STUDY"),
    ],
)
def test_wrong_requests_exit_with_2_and_write_nothing(
    tmp_path: Path, arguments: list[str], message: str
) -> None:
    assert message in lce(tmp_path / "home", *arguments, status=2)
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "no .jsonl or .txt"),
        (b"caf\xe9", "byte 3, which is not UTF-8"),
        ("locked", "cannot be"),
    ],
    ids=["empty folder", "latin-1", "unreadable"],
)
def test_unusable_text_is_refused_before_anything_is_written(
    tmp_path: Path, content: bytes | str | None, message: str
) -> None:
    folder = tmp_path / "text"
    folder.mkdir()
    if content == "locked":
        (folder / "a.txt").symlink_to("a.txt")  # root reads any file, but nobody reads a loop
    elif isinstance(content, bytes):
        (folder / "a.txt").write_bytes(content)
    study = write_study(tmp_path, corpus={"name": "jsonl_folder"})
    output = lce(tmp_path / "home", "run", study, "--data-folder", f"text={folder}", status=2)
    assert message in output
    assert str(folder) in output
    assert not (tmp_path / "home").exists()


def test_a_full_disk_stops_the_run_and_keeps_what_is_done(tmp_path: Path) -> None:
    disk, study = tmp_path / "disk", write_study(tmp_path)
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=48m", "tmpfs", str(disk)]).returncode:
        pytest.skip("mounting a small disk needs root")
    try:
        run = subprocess.Popen(
            [*LCE, "run", study],
            env=environment(disk / "home"),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        wait_until(lambda: list((disk / "home" / "artifacts").glob("held_out/local*")))
        with contextlib.suppress(OSError), (disk / "filler").open("wb") as file:
            while True:
                file.write(b"0" * 4096)
                file.flush()
        output = run.communicate(timeout=300)[0]
        assert run.returncode == 3, output
        assert "free some, then run again" in output
        assert [record.kind for _, record in Store(disk / "home").records()]
        assert not list((disk / "home" / "artifacts").glob("*/.attempt*"))
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_a_home_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    output = lce(tmp_path / "file" / "home", "run", "smoke", status=2)
    assert "set LCE_HOME to a writable folder" in output


def test_sql_that_writes_is_refused_and_changes_nothing(home: Path) -> None:
    before = (home / "catalog.duckdb").read_bytes()
    for statement in ("DELETE FROM scores", "DROP VIEW scores", "COPY scores TO 'x.csv'"):
        assert "one statement that reads" in lce(home, "sql", statement, status=2)
    assert (home / "catalog.duckdb").read_bytes() == before


def test_prefect_deployment_run_as_typed_completes(home: Path) -> None:
    ports = {"--port": free_port(), "--mlflow-port": free_port()}
    lce(home, "up", *(str(part) for pair in ports.items() for part in pair))
    try:
        answer = subprocess.run(
            [
                *(sys.executable, "-m", "prefect", "deployment", "run", "controlled-study"),
                *("-p", "study=smoke", "--watch"),
            ],
            cwd=ROOT,
            env={
                **environment(home),
                "PREFECT_API_URL": f"http://127.0.0.1:{ports['--port']}/api",
                "PREFECT_HOME": str(home / "prefect"),
            },
            capture_output=True,
            text=True,
            timeout=400,
        )
        assert answer.returncode == 0, answer.stdout + answer.stderr
        _, rows = run_query(
            home / "catalog.duckdb", "SELECT DISTINCT status FROM cells WHERE study = 'smoke'"
        )
        assert rows == [("done",)]
        artifacts = ask(f"http://127.0.0.1:{ports['--port']}/api/artifacts/filter")
        assert [one["data"] for one in artifacts if one["key"] == "study-progress"] == [100.0]
    finally:
        lce(home, "down")


def ask(url: str) -> Any:
    request = urllib.request.Request(
        url, data=b"{}", headers={"Content-Type": "application/json"}, method="POST"
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
