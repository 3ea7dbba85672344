"""What a command tells the shell when it ends with an error."""

import os
import subprocess
import sys

import pytest

from lce import cli
from lce_core import errors
from lce_core.environment import for_child
from lce_core.errors import StudyIncompleteError

CODES = {
    "StudyIncompleteError": 1,
    "SpecError": 2,
    "UnavailableError": 2,
    "DataError": 2,
    "NonFiniteError": 2,
    "StepsFailedError": 2,
    "StoreError": 3,
    "LeaseLostError": 3,
    "ServiceError": 3,
    "PrefectMovedError": 3,
    "WorkerLostError": 3,
    "RunEndedError": 3,
    "ProcessFailedError": 3,
    "DefectError": 3,
}
"""As the README has them; 3 is what no change of the request cures."""


def test_every_class_of_error_has_its_exit_code():
    parts = ("where", "this", "that", "do it", "")
    found = {}
    for name in (kind for kind in vars(errors) if kind.endswith("Error") and kind != "LceError"):
        error = errors.restored(name, parts)
        assert error is not None
        found[name] = cli.exit_code(error)
    assert found == CODES


def test_an_error_ends_the_command_with_its_message_and_code(monkeypatch, capsys):
    error = StudyIncompleteError("toy", {"train-yarn": "non_finite: loss nan"}, 0)

    def fail(*, as_json: bool) -> None:
        raise error

    monkeypatch.setattr("lce.plugins.listing.models", fail)
    monkeypatch.setattr(sys, "argv", ["lce", "models"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 1
    assert capsys.readouterr().err == f"lce: {error}\n"


@pytest.mark.parametrize("closing", ["sys.stdout.close()", "os.close(1)"])
def test_a_plugin_that_closes_standard_output_is_told_so(closing):
    code = (
        "import os, sys; from lce import cli; from lce.plugins import listing;"
        f"listing.models = lambda as_json: ({closing}, print('a list', flush=True));"
        "sys.argv = ['lce', 'models']; cli.main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=for_child(os.environ), capture_output=True, text=True
    )
    assert done.returncode == 2
    assert done.stderr.startswith("lce: standard output: got a stream that is closed; expected ")
    assert done.stderr.count("\n") == 1
