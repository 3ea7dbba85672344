"""Prefect deployments of the shipped studies, generated from flows/studies.

`lce up` deploys this text. The checkout's prefect.yaml, which `prefect deploy` reads, is a copy:

    python -m flows.servers.deployments > prefect.yaml
"""

from __future__ import annotations

import re
import sys
import textwrap
from typing import Any

import yaml

from flows.settings import shipped_studies, study_path
from lce_core.study.plain_yaml import plain_yaml

POOL = "lce"
ENTRYPOINT = "flows/study.py:controlled_study"
_HEADER = """\
# Generated from flows/studies: python -m flows.servers.deployments > prefect.yaml
# `lce up` creates these deployments; so does `prefect --no-prompt deploy --all`.
# `prefect deployment run controlled-study` runs the toy study, or another one with -p study=NAME;
# `prefect deployment run controlled-study/NAME` runs a study by its name.
# There is no pull section, so that Prefect runs the flow in the folder from which it was deployed.

"""


def prefect_yaml() -> str:
    any_study = "Any study: set the parameter `study`. Without parameters, the toy study."
    listed = [_deployment("controlled-study", "toy", any_study)]
    listed += [_deployment(name, name, _description(name)) for name in shipped_studies()]
    content = {"name": "lce", "deployments": listed}
    return _HEADER + yaml.dump(content, Dumper=_Dumper, sort_keys=False, width=100)


def _deployment(name: str, study: str, description: str) -> dict[str, Any]:
    return {
        "name": name,
        "entrypoint": ENTRYPOINT,
        "description": description,
        "tags": ["study", "gpu"] if re.search(r"\bGPUs?\b", description) else ["study"],
        "parameters": {"study": study},
        "concurrency_limit": {"limit": 1, "collision_strategy": "ENQUEUE"},
        "work_pool": {"name": POOL},
    }


def _description(study: str) -> str:
    """Return the study file's first comment, up to its command, and the study's hypothesis."""
    text = study_path(study).read_text(encoding="utf-8")
    comment = re.match(r"(?:# \S.*\n)+", text)
    assert comment, f"{study}.yaml begins with a comment"
    about = " ".join(line.removeprefix("# ") for line in comment[0].splitlines())
    parts = (about, f"Hypothesis: {plain_yaml(text, study)['hypothesis']}")
    return "\n\n".join(textwrap.fill(part, 90, break_on_hyphens=False) for part in parts)


class _Dumper(yaml.SafeDumper):
    """Writes text of several lines as a block."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)

if __name__ == "__main__":
    sys.stdout.write(prefect_yaml())
