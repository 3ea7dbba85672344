"""Every speed script can be imported: no other test runs most of them."""

import importlib

import pytest

from tests.support.repository import ROOT

# torch's compiler warns about itself.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]


@pytest.mark.parametrize("script", sorted(file.stem for file in (ROOT / "perf").glob("*.py")))
def test_a_script_finds_the_functions_that_it_measures(script):
    importlib.import_module(script)
