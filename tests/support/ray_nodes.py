"""A Ray cluster of two nodes on this machine's loopback, in processes of their own.

`python -m tests.support.ray_nodes FOLDER` prints its address and holds it until its input ends.
Each node declares one core and one GPU, and has variables for other programs.
"""

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil

from tests.support.hostile_variables import LAUNCHERS, LIBRARIES, SERVERS
from tests.support.repository import ROOT

NODE = "RAY_TEST_NODE"
LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_USAGE_STATS_ENABLED": "0"}
"""For drivers as well: on other systems Ray takes 127.0.0.1 for itself, here for the host's."""
_SOON = {"initial_delay_ms": 0, "period_ms": 500, "timeout_ms": 60_000, "failure_threshold": 3}


def main(folder: str) -> None:
    from ray.cluster_utils import Cluster

    given = {
        "node_ip_address": "127.0.0.1",
        "num_cpus": 1,
        "num_gpus": 1,
        "object_store_memory": 80_000_000,
    }
    health = {f"health_check_{name}": value for name, value in _SOON.items()}
    head = given | {"include_dashboard": False, "temp_dir": folder, "_system_config": health}
    # Two nodes of one machine would otherwise both lease its first GPU.
    nodes = [{NODE: name, "CUDA_VISIBLE_DEVICES": str(n)} for n, name in enumerate(("head", "far"))]
    cluster = Cluster(True, connect=False, head_node_args=head | {"env_vars": nodes[0]})
    cluster.add_node(**given, env_vars=nodes[1])
    sys.stdout.write(f"{cluster.address}\n")
    sys.stdout.flush()
    sys.stdin.read()
    cluster.shutdown()


@contextlib.contextmanager
def two_nodes() -> Iterator[str]:
    # Sockets lie there, whose paths may have a hundred characters.
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp") as folder:
        log = Path(folder) / "cluster.log"
        # Ray itself does not start with variables about connections.
        theirs = LAUNCHERS | LIBRARIES | SERVERS | {"CUDA_VISIBLE_DEVICES": "0,1"}
        # There a cluster notes its address, by default where every cluster of the machine does.
        (Path(folder) / "ray").mkdir()
        with (
            log.open("wb") as errors,
            subprocess.Popen(
                [sys.executable, "-m", "tests.support.ray_nodes", folder],
                cwd=ROOT,
                env={**os.environ, **theirs, **LOOPBACK, "RAY_TMPDIR": folder},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            ) as cluster,
        ):
            try:
                assert cluster.stdout is not None
                address = cluster.stdout.readline().strip()
                assert address, log.read_text(encoding="utf-8")
                yield address
            finally:
                assert cluster.stdin is not None
                cluster.stdin.close()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    cluster.wait(600)
                cluster.kill()


def processes_of(node: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get(NODE) == node:
                found.append(process)
    return found


def kill_node(node: str) -> None:
    """Ends a node as a power cut does."""
    for process in processes_of(node):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


if __name__ == "__main__":
    main(sys.argv[1])
