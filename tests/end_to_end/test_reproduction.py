"""The commands that a report prints compute a user's own study again, in a new home."""

import html
import re
import subprocess
import sys
from typing import Any

import pytest

from tests.support.repository import ROOT
from tests.support.studies import environment, lce, library_text, scores, write_study

pytestmark = pytest.mark.slow

STUDY: dict[str, Any] = {
    "study": "own",
    "hypothesis": "None.",
    "target_context": 256,
    "corpus": {"name": "jsonl_folder", "domain_names": ["code"], "held_out_percent": 30},
    "base_models": [{"name": "toy_llama", "steps": 2}],
    "methods": ["none", {"name": "power_ramp", "exponent": 2.0}],
    "benchmarks": [
        {"name": "perplexity", "profile": "tiny", "domains": ["code"], "lengths": [128, 256]}
    ],
    "evaluation": {"held_out_tokens": 4096},
    "seeds": [0],
}


def test_the_commands_of_a_report_compute_an_own_study_again(tmp_path):
    folder = tmp_path / "with a space"
    folder.mkdir()
    library_text(folder / "text")
    plugins, home = str(ROOT / "docs" / "examples" / "plugins"), tmp_path / "home"
    study, text = write_study(folder, STUDY), f"text={folder / 'text'}"
    lce(home, "worker", study, "--plugins", plugins, "--data-folder", text)
    lce(home, "report", "own", "--out", str(tmp_path / "own.html"))
    page = (tmp_path / "own.html").read_text(encoding="utf-8")
    found = re.search(r'id="origin".*?<pre[^>]*>(.*?)</pre>', page, re.DOTALL)
    assert found
    commands = html.unescape(found[1]).splitlines()
    elsewhere = tmp_path / "elsewhere"
    program = elsewhere / ".venv" / "bin" / "lce"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!{sys.executable}\nfrom lce.cli import main\nmain()\n")
    program.chmod(0o755)
    # This installation stands for the one that `git checkout` and `make` would prepare.
    shown = "\n".join(line for line in commands if not line.startswith(("git ", "make ")))
    env = environment(tmp_path / "unused", PYTHONPATH=str(ROOT))
    ran = subprocess.run(
        ["bash", "-e", "-c", shown], cwd=elsewhere, env=env, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert not (tmp_path / "unused").exists()
    assert scores(elsewhere / "lce-home-again") == scores(home) != []
    assert "power_ramp" in ran.stdout
