"""The files of docs/examples/clusters: as far as they can be read without a cluster."""

import inspect
import os
import re
import shlex
import subprocess
from typing import Any

import typer.main
import yaml

from flows.settings import read_accelerate_config, shipped_studies
from flows.study import controlled_study
from lce.cli import app
from lce_core.execution import Execution
from tests.support.repository import ROOT

FOLDER = ROOT / "docs" / "examples" / "clusters"


def script(name: str = "slurm.sh") -> str:
    return (FOLDER / name).read_text(encoding="utf-8")


def documents() -> dict[str, Any]:
    files = [file.read_text(encoding="utf-8") for file in FOLDER.glob("*.yaml")]
    loaded = [one for text in files for one in yaml.safe_load_all(text)]
    return {one.get("kind", "deployments"): one for one in loaded}


def option(arguments: list[str], name: str) -> str:
    return arguments[arguments.index(name) + 1]


def require_worker(arguments: list[str], seconds_to_end: float | None = None) -> None:
    """The arguments are a shipped study and what `lce worker` takes, with time to end."""
    group: Any = typer.main.get_command(app)
    # Parsed, not run; raises where an option or a value is not one.
    context = group.commands["worker"].make_context("worker", list(arguments))
    assert set(context.params["studies"]) <= set(shipped_studies())
    if seconds_to_end is not None:
        # Ten more for a worker to give its lease back.
        assert float(option(arguments, "--grace")) + 10 < seconds_to_end


def bash(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    known = {"PATH": os.environ["PATH"], **environment}
    return subprocess.run(["bash", "-c", code], env=known, capture_output=True, text=True)


def require_pod(pod: dict[str, Any], claim: str) -> dict[str, Any]:
    """Return the only container; its volumes are those of the pod, the claim among them."""
    (container,) = pod["containers"]
    assert {mount["name"] for mount in container["volumeMounts"]} == {
        volume["name"] for volume in pod["volumes"]
    }
    named = [one.get("persistentVolumeClaim", {}).get("claimName") for one in pod["volumes"]]
    assert [name for name in named if name] == [claim]
    assert all(isinstance(one["value"], str) for one in container["env"])
    found: dict[str, Any] = container
    return found


def test_the_slurm_script_has_its_options_first_and_gives_a_worker_time_to_end():
    lines = script().splitlines()
    asked = [line for line in lines if line.startswith("#SBATCH")]
    assert lines[1 : 1 + len(asked)] == asked
    keys = [line.split(" ", 1)[1].split("=")[0] for line in asked]
    assert len(keys) == len(set(keys))
    assert {"--array", "--signal", "--requeue", "--time"} <= set(keys)
    (command,) = re.findall(r"^srun (lce worker .*?) \|\|", script(), re.MULTILINE | re.DOTALL)
    arguments = shlex.split(command.replace("\\\n", " "))
    assert arguments.pop() == "${folders[@]}"
    (seconds,) = re.findall(r"--signal=TERM@(\d+)", script())
    require_worker(arguments[2:], int(seconds))


def test_the_slurm_script_requeues_what_was_preempted_and_nothing_else():
    fakes = 'srun() { return "$CODE"; }; scontrol() { echo "$@"; }\n'
    for code, said in ((0, ""), (1, ""), (130, "requeue 7_3\n")):
        job = {"SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "3"}
        done = bash(fakes + script(), CODE=str(code), **job)
        assert (done.returncode, done.stdout, done.stderr) == (code, said, "")


def test_the_script_of_two_nodes_starts_a_worker_and_what_joins_it(tmp_path, monkeypatch):
    fakes = """
        scontrol() { printf 'first\\nsecond\\n'; }
        lce() { printf '%s\\n' "$*"; }
        export -f lce
        srun() { shift; for node in 0 1; do SLURM_NODEID=$node "$@"; done; }
    """
    ran = (
        script("slurm_nodes.sh")
        .replace("exec lce", "lce")
        .replace('"$SLURM_NODEID"\n', '"$SLURM_NODEID"; exit\n')
    )
    monkeypatch.chdir(tmp_path)
    done = bash(fakes + ran, SLURM_JOB_ID="7", SLURM_NNODES="2", SLURM_JOB_NODELIST="x")
    assert done.stderr == ""
    file = tmp_path / "accelerate-7.yaml"
    config = read_accelerate_config(file)
    assert (config.processes_here, config.main_process_ip) == (8, "first")
    on_first, on_second = (shlex.split(line) for line in done.stdout.splitlines())
    assert on_first[0] == "worker"
    require_worker(on_first[1:])
    assert on_second == ["join", str(file), "--machine-rank", "1"]


def test_the_kubernetes_job_starts_workers_and_ends_where_no_further_pod_would_help():
    job, claim = documents()["Job"], documents()["PersistentVolumeClaim"]
    pod = job["spec"]["template"]["spec"]
    assert pod["restartPolicy"] == "Never"  # a failure policy asks for it
    container = require_pod(pod, claim["metadata"]["name"])
    assert container["command"] == ["lce", "worker"]
    assert all(isinstance(one, str) for one in container["args"])
    require_worker(container["args"], pod["terminationGracePeriodSeconds"])
    rules = {}
    for rule in job["spec"]["podFailurePolicy"]["rules"]:
        assert len(rule) == 2
        if codes := rule.get("onExitCodes"):
            assert (codes["containerName"], codes["operator"]) == (container["name"], "In")
            rules |= dict.fromkeys(codes["values"], rule["action"])
    assert rules == {2: "FailJob", 130: "Ignore"}


def test_the_ray_job_runs_a_study_on_its_own_cluster_whose_nodes_hold_a_training_run():
    job = documents()["RayJob"]
    cluster = job["spec"]["rayClusterSpec"]
    assert f"\nray=={cluster['rayVersion']} " in (ROOT / "requirements.txt").read_text("utf-8")
    head, (group,) = cluster["headGroupSpec"], cluster["workerGroupSpecs"]
    counts = {group[name] for name in ("replicas", "minReplicas", "maxReplicas")}
    assert len(counts) == 1  # what is there when the run begins is used
    for part in (head, group):
        assert all(isinstance(one, str) for one in part["rayStartParams"].values())
        claim = documents()["PersistentVolumeClaim"]["metadata"]["name"]
        container = require_pod(part["template"]["spec"], claim)
        assert {"name": "RAY_USAGE_STATS_ENABLED", "value": "0"} in container["env"]
    assert head["rayStartParams"]["num-cpus"] == "0"  # the driver alone is there
    lce, run, *asked = shlex.split(job["spec"]["entrypoint"])
    assert (lce, run) == ("lce", "run")
    cli: Any = typer.main.get_command(app)
    given = cli.commands["run"].make_context("run", asked).params
    assert given["study"] in shipped_studies()
    assert Execution(home=ROOT, engine=given["engine"]).engine == "ray"  # KubeRay sets RAY_ADDRESS
    limits = container["resources"]["limits"]
    assert given["processes"] <= limits["nvidia.com/gpu"] <= limits["cpu"]


def test_both_deployments_for_a_work_pool_are_ones_that_the_flow_and_its_execution_take():
    (cluster,) = documents()["deployments"]["deployments"]
    (shipped,) = yaml.safe_load((ROOT / "prefect.yaml").read_text(encoding="utf-8"))["deployments"]
    for deployment in (cluster, shipped):
        assert deployment["entrypoint"] == "flows/study.py:controlled_study"
        parameters = deployment["parameters"]
        assert set(parameters) <= set(inspect.signature(controlled_study.fn).parameters)
        assert parameters["study"] in shipped_studies()
        assert set(deployment["work_pool"]["job_variables"]) == {"stream_output", "env"}
    Execution.model_validate(cluster["parameters"]["execution"])
    assert set(cluster) <= set(shipped)
