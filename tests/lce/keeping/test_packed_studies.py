"""`lce pack` and `lce_core.offline`: a study is computed where little is installed, and comes back.

Strategy: a home that only has the finished study's plan packs it; processes that find no Prefect,
MLflow or DuckDB compute it, are killed and continue; the home imports the results.
"""

import errno
import io
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from flows.settings import make_execution
from lce.keeping import packing
from lce.keeping.packing import pack_study
from lce_core.corpora.local_text import LocalText
from lce_core.errors import NonFiniteError, SpecError, WorkerLostError
from lce_core.offline import _Place, _Worker
from lce_core.store.artifacts import Store
from lce_core.store.identity import ID_DIGITS
from lce_core.store.parcels import ResultParcels
from lce_core.study.plugin_folders import add_plugin_folders
from lce_core.study.units import Unit
from tests.lce_core.study.test_installed_plugins import FILES, installed
from tests.support.bare_gpu_machine import bare_environment
from tests.support.free_steps import free_step, write_file
from tests.support.plugin_copies import plugins_removed_after
from tests.support.repository import ROOT
from tests.support.studies import (
    SMOKE,
    TINY_STEPS,
    computed,
    copied_home,
    lce,
    scores,
    wait_until,
    write_study,
)

pytestmark = pytest.mark.slow
THERE = (
    *("pydantic", "pyarrow", "scipy", "threadpoolctl", "psutil", "filelock", "packaging"),
    *("wonderwords", "typing-extensions"),
)
HAS = tuple(word for name in THERE for word in ("--has", name))
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"


@pytest.fixture(scope="module")
def packed(finished, text, tmp_path_factory):
    """A home with the plan alone, and the unpacked parcels of 100 kB and more of its study."""
    folder = tmp_path_factory.mktemp("packed")
    home = copied_home(finished, folder / "home")
    shutil.rmtree(home / "artifacts")
    (home / "catalog.duckdb").unlink()
    study = write_study(folder)
    options = ("--python", VERSION, "--parcel", "1MB", *HAS)
    told = lce(home, "pack", study, "--out", str(folder / "parcels"), *text, *options)
    assert "14 units of work" in told
    parcels = sorted((folder / "parcels").glob("tiny.tar.*"))
    assert len(parcels) > 0
    assert all(one.stat().st_size <= 10**6 for one in parcels)
    command = "sha256sum --quiet -c tiny.sha256 && cat tiny.tar.* | tar xz"
    subprocess.run(["sh", "-c", command], cwd=folder / "parcels", check=True)
    return home, folder / "parcels" / "tiny"


def offline(folder: Path, work: Path, *options: str, **how) -> subprocess.Popen:
    work.mkdir(exist_ok=True)
    environment = bare_environment(work, ("threadpoolctl", "scipy", "wonderwords"))
    environment["PYTHONPATH"] = f"{work}:{folder / 'code'}"
    command = [sys.executable, "-m", "lce_core.offline", ".", *options]
    return subprocess.Popen(command, cwd=folder, env=environment, text=True, **how)


def said(folder: Path, work: Path, *options: str) -> tuple[int, str]:
    process = offline(folder, work, *options, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    told, _ = process.communicate()
    return process.returncode, told


def test_a_study_is_computed_elsewhere_killed_continued_and_imported(
    packed, finished, text, tmp_path
):
    home, folder = copied_home(packed[0], tmp_path / "home"), packed[1]
    elsewhere, cpu = tmp_path / "elsewhere", ("--device", "cpu", "--workers", "2")
    cells = elsewhere / "artifacts" / "cell"
    where = ("--home", str(elsewhere), *cpu)
    first = offline(folder, tmp_path / "bare", *where, stdout=subprocess.PIPE)
    units = json.loads((folder / "pack.json").read_text())["units"]
    base = next(step for unit in units for step in unit["steps"] if step["kind"] == "base")
    lease = elsewhere / "leases" / f"{base['fingerprint'][:ID_DIGITS]}.json"
    wait_until(lambda: lease.exists() or first.poll() is not None)
    os.kill(json.loads(lease.read_text())["pid"], signal.SIGKILL)  # as the kernel does
    wait_until(lambda: (cells.is_dir() and any(cells.glob("[!.]*"))) or first.poll() is not None)
    assert first.returncode is None, "ended before it could be killed"
    first.send_signal(signal.SIGKILL)
    assert "which ended with exit code -9" in first.communicate()[0]
    status, told = said(folder, tmp_path / "bare", *where, "--out", str(tmp_path / "results"))
    assert status == 0, told
    assert f"{TINY_STEPS} of {TINY_STEPS} steps and 12 of 12 cells done" in told
    logs = "".join(log.read_text() for log in elsewhere.glob("offline-*.jsonl")).splitlines()
    names = [name for line in logs for name in json.loads(line)["computed"]]
    assert len(names) == len(set(names))
    parcels = map(str, sorted((tmp_path / "results").iterdir()))
    assert "0 refused" in lce(home, "import", *parcels)
    assert scores(home) == scores(finished)
    assert computed(lce(home, "run", write_study(tmp_path), *text)) == 0


def test_a_call_without_time_ends_and_writes_what_is_there(packed, tmp_path):
    _, folder = packed
    where = ("--home", str(tmp_path / "elsewhere"), "--device", "cpu", "--seconds", "0.1")
    status, told = said(folder, tmp_path / "bare", *where)
    assert status == 0, told
    assert f"0 of {TINY_STEPS} steps" in told
    assert not list((tmp_path / "elsewhere" / "leases").glob("*.json"))


@pytest.mark.parametrize(
    ("error", "attempts"),
    [
        (SpecError("a", "b", "c", "d"), 1),
        (OSError(errno.ENOSPC, "no space left"), 1),
        (WorkerLostError("a", "b", "c", "d"), 3),
        (NonFiniteError("a", "b", "c", "d"), 0),
    ],
)
def test_a_later_call_tries_again_what_failed(tmp_path, error, attempts):
    store, step, asked = Store(tmp_path), free_step("held_out", "a", {}, {}), []
    store.prepare()
    for _ in range(3):
        store.failures.add(step, error, {})

    def fail(attempt):
        asked.append(attempt)
        raise error

    runner = SimpleNamespace(ensure=lambda step: store.ensure(step, fail, {}))
    context = multiprocessing.get_context("spawn")
    place = _Place("cpu-0", "", context.Semaphore(1), context.RawArray("c", ID_DIGITS))
    worker = _Worker(store, runner, place, 0.0, store.failures.attempts(), {})
    while not worker.is_settled(Unit("a", "held_out", (step,))):
        worker.tried(Unit("a", "held_out", (step,)), shared=False)
        worker.look()
    assert len(asked) == attempts


def test_a_failure_that_a_retry_mends_while_parcels_are_written_is_left_out(tmp_path, monkeypatch):
    store, steps = Store(tmp_path), [free_step("cell", name, {"name": name}, {}) for name in "ab"]
    store.prepare()
    store.ensure(steps[0], write_file, {})
    store.failures.add(steps[1], OSError("lost"), {})
    parcels = ResultParcels("s", "0", steps, store, tmp_path / "out", 1e6, kept=(), weights=False)

    def files(folder):
        store.failures.forget(steps[1].id)
        return sorted(folder.iterdir())

    monkeypatch.setattr(parcels, "_files", files)
    parcels.write()
    (parcel,) = (tmp_path / "out").iterdir()
    with tarfile.open(parcel) as tar:
        names = tar.getnames()
    cell = f"artifacts/{steps[0].folder}"
    assert names == ["parcel.json", f"{cell}/file", f"{cell}/record.json"]


def test_nothing_in_the_parcels_names_this_machine(packed):
    home, folder = packed
    parts = sorted(folder.parent.glob("tiny.tar.*"))
    with tarfile.open(fileobj=io.BytesIO(b"".join(part.read_bytes() for part in parts))) as tar:
        files = {one.name: tar.extractfile(one).read() for one in tar if one.isreg()}
    assert "tiny/pack.json" in files
    for secret in (str(home.parent), str(Path.home()), str(ROOT)):
        assert [name for name, content in files.items() if secret.encode() in content] == []


@pytest.mark.parametrize(
    ("change", "status", "expected"),
    [
        (lambda pack: pack.update(python="3.9"), 3, "Python 3.9, for which the study was packed"),
        (lambda pack: pack["needs"].update(torch=">=99"), 3, "package torch: got version"),
        (lambda pack: pack["needs"].update(absent=">=1"), 3, "package absent: got version none"),
        (lambda pack: pack["files"].update({"data/lost": "00"}), 3, "missing or changed"),
        (lambda pack: pack.pop("files"), 2, "no readable pack.json"),
        (lambda pack: None, 3, "torch sees no CUDA device"),
    ],
)
def test_a_pack_or_machine_that_does_not_fit_is_refused(packed, tmp_path, change, status, expected):
    folder = tmp_path / "tiny"
    shutil.copytree(packed[1], folder)
    content = json.loads((folder / "pack.json").read_text())
    change(content)
    (folder / "pack.json").write_text(json.dumps(content))
    ended, told = said(folder, tmp_path / "bare")
    assert ended == status
    assert expected in told
    assert len(told.splitlines()) == 1
    assert not (folder / "home" / "artifacts").exists()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--parcel", "small"), "a size such as 60MB or 2GB"),
        (("--python", "3.12.4"), "a version such as 3.12"),
        (("--data-folder", f"pg19=hub:a/b@{40 * '0'}"), "because the other one has no network"),
    ],
)
def test_what_cannot_travel_is_refused(packed, text, tmp_path, options, expected):
    given = ("pack", write_study(tmp_path), "--out", str(tmp_path / "out"), *text, *HAS)
    assert expected in lce(packed[0], *given, *options, status=2)
    assert not list((tmp_path / "out").glob("*"))


def test_the_package_of_an_installed_plugin_travels_as_a_wheel(tmp_path, monkeypatch):
    metadata = "acme_rope-1.2.dist-info/METADATA"
    changes = {metadata: f"{FILES[metadata]}Requires-Dist: lce\n"}
    monkeypatch.syspath_prepend(installed(tmp_path / "site", **changes))
    wheels: list[str] = []

    def download(packages: Sequence[str], python: str, target: Path) -> None:
        target.mkdir()
        wheels[:] = packages

    monkeypatch.setattr(packing, "_download", download)
    yarn = {"name": "yarn", "tuned": True}
    execution = make_execution({"home": tmp_path / "home", "device": "cpu", "slots": 1})
    with plugins_removed_after():
        add_plugin_folders(())
        for number, (method, has) in enumerate(
            [("halved", ()), ("halved", ("acme-rope",)), ("self_extend", ())]
        ):
            study = write_study(tmp_path, SMOKE, methods=["none", method, yarn])
            out = tmp_path / f"out{number}"
            pack_study(study, execution, out, parcel="60MB", python=VERSION, has=has)
            assert ("acme-rope" in wheels) == (number == 0)
            assert "prefect" not in wheels


def test_more_than_999_parcels_are_joined_in_their_order(tmp_path):
    parts = packing._Parts(tmp_path / "tiny.tar", 1)
    parts.write(b"0" * 1001)
    assert sorted(parts.paths) == parts.paths


def test_exported_text_of_the_library_is_the_text_itself(tmp_path):
    corpus = LocalText()
    corpus.export(tmp_path)
    assert corpus.digest({"local_text": tmp_path}) == corpus.digest({})
    for split in ("train", "held_out"):
        exported = corpus.documents(split, {"local_text": tmp_path})
        assert list(exported) == list(corpus.documents(split, {}))
