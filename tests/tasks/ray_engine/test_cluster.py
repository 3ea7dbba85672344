"""What a run asks of Ray, where no cluster is needed to see it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from flows.settings import make_execution
from lce_core.errors import ServiceError, SpecError
from lce_core.execution import Execution
from tasks.ray_engine import cluster
from tasks.slots import Slot
from tests.support.ports import unused_port
from tests.support.repository import ROOT


def test_an_engine_is_local_ray_or_ray_at_an_address(tmp_path):
    for engine in ("local", "ray", "ray:head:6379"):
        assert Execution(home=Path(), engine=engine).engine == engine
    for engine in ("", "ray:", "ray:head", "ray://head:10001", "raya"):
        with pytest.raises(SpecError, match=r"execution\.engine: got "):
            make_execution({"home": tmp_path, "engine": engine})


def test_without_ray_a_run_says_how_to_install_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ServiceError, match=r"without the package ray.*all nodes.*make install"):
        make_execution({"home": tmp_path, "engine": "ray"})


def test_where_nothing_listens_a_run_says_so_at_once(tmp_path):
    engine = f"ray:127.0.0.1:{unused_port()}"
    with pytest.raises(ServiceError, match=rf"no Ray cluster at {engine[4:]} .*refused.*ray start"):
        make_execution({"home": tmp_path, "engine": engine})


@pytest.mark.parametrize(
    ("slot", "asked"),
    [
        (Slot((0, 1, 2, 3), ("0", "1", "2", "3")), {"num_gpus": 4, "num_cpus": 8}),
        (Slot((1,)), {"num_gpus": 0, "num_cpus": 2}),
    ],
    ids=["training", "cpu"],
)
def test_an_actor_asks_for_the_gpus_and_threads_of_its_slot(slot, asked):
    assert cluster.needs_of(slot, Execution(home=Path(), threads=2)) == asked


def test_an_actor_finds_this_code_and_the_hub_as_it_is_here(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("SECRET", "none of theirs")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["/elsewhere", str(ROOT)]))
    given = cluster.environment()["env_vars"]
    assert given["HF_HUB_OFFLINE"] == "1"
    assert given["PYTHONPATH"] == os.pathsep.join([str(ROOT), "/elsewhere"])
    assert "SECRET" not in given


@pytest.mark.parametrize(
    ("user", "message"),
    [
        (None, "no Ray cluster at 127"),
        pytest.param(
            65534,
            "of which you run no node here; expected a cluster of your own.* --engine ray:127",
            marks=pytest.mark.skipif(os.geteuid() != 0, reason="only root has other users"),
        ),
    ],
)
def test_ray_may_not_choose_a_cluster_of_another_user(user, message, monkeypatch, tmp_path):
    address = f"127.0.0.1:{unused_port()}"
    monkeypatch.setattr(
        "ray._private.services.canonicalize_bootstrap_address_or_die", lambda _: address
    )
    command = ["sh", "-c", "echo; read line", "raylet", f"--gcs-address={address}"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, user=user) as node:
        assert node.stdout is not None
        node.stdout.readline()  # from now on the process has its words
        with pytest.raises(ServiceError, match=message):
            make_execution({"home": tmp_path, "engine": "ray"})
