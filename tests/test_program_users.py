"""The option that lets `make check` repeat only test files that use programs."""

import subprocess
import sys

from tests.support.repository import ROOT

FILES = {
    "starts": "import subprocess\ndef test_it():\n    subprocess.run(['true'])\n",
    "lacks": (
        "import pytest, subprocess\n"
        "def test_it():\n    with pytest.raises(OSError):\n        subprocess.run(['/none'])\n"
    ),
    "looks": "import shutil\ndef test_it():\n    shutil.which('none')\n",
    "forks": (
        "import multiprocessing, pytest\n@pytest.fixture\ndef process():\n"
        "    process = multiprocessing.get_context('forkserver').Process(target=print)\n"
        "    process.start()\n    process.join()\n"
        "def test_it(process):\n    pass\n"
    ),
    "none": "import subprocess\nsubprocess.run(['true'])\ndef test_it():\n    pass\n",
}


def test_files_that_start_a_program_or_look_for_one_are_noted(tmp_path):
    for name, text in FILES.items():
        (tmp_path / f"test_that_{name}.py").write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.support.program_users", "-n"]
    command += ["1", "--dist=loadfile", "--program-users=noted", "--rootdir=.", "-c/dev/null", "."]
    ended = subprocess.run(
        command,
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    noted = (tmp_path / "noted").read_text(encoding="utf-8").split()
    assert sorted(noted) == [f"test_that_{name}.py" for name in sorted(set(FILES) - {"none"})]
