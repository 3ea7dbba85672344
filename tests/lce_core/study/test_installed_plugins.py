"""Plug-ins of an installed package: found by entry point, recorded with the package's version."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lce_core.errors import SpecError
from lce_core.methods import METHODS
from lce_core.store.records import PluginCode
from lce_core.study.plugin_folders import add_plugin_folders
from tests.support.plugin_copies import plugins_removed_after

METHOD = '''"""Every frequency divided by a constant of the package."""

import numpy as np
from acme_rope._numbers import DIVISOR
from lce_core.methods import ScaledMethod
from lce_core.registry import Source
from lce_core.rope import RopeTable


class Halved(ScaledMethod):
    family = "interpolation"

    def rope_table(self, geometry, lengths):
        return RopeTable(np.asarray(geometry.inv_freq()) / DIVISOR)


METHOD = Halved
SOURCE = Source(paper="own", place="here", reference="own")
EVIDENCE = ()
VERSION = 1
'''
FILES = {
    "acme_rope/__init__.py": "",
    "acme_rope/_numbers.py": "import neighbour\n\nDIVISOR = 2\n",
    "neighbour.py": "",  # a library beside the package
    "acme_rope/methods/halved.py": METHOD,
    "acme_rope-1.2.dist-info/METADATA": "Metadata-Version: 2.1\nName: acme-rope\nVersion: 1.2\n",
    "acme_rope-1.2.dist-info/entry_points.txt": "[lce.plugins]\nacme = acme_rope\n",
}


def installed(site: Path, **changes: str) -> Path:
    for name, text in {**FILES, **changes}.items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(text, encoding="utf-8")
    return site


@pytest.fixture
def site(tmp_path, monkeypatch) -> Iterator[Path]:
    """The folder of the installed package, on the path of this process."""
    site = installed(tmp_path / "site")
    monkeypatch.syspath_prepend(site)
    with plugins_removed_after():
        yield site
    for name in [name for name in sys.modules if name.startswith(("acme_rope", "neighbour"))]:
        del sys.modules[name]


def registered() -> PluginCode:
    with plugins_removed_after():
        add_plugin_folders(())
        code = METHODS.code("halved")
        assert code is not None
        return code


def test_a_plugin_is_found_without_an_import_and_its_code_names_its_package(site):
    add_plugin_folders(())
    assert "halved" in METHODS.names()
    assert "acme_rope" not in sys.modules
    code = registered()
    assert code.package == "acme-rope 1.2"
    assert code.file == str(site / "acme_rope" / "methods" / "halved.py")


def test_the_digest_covers_the_package_but_no_library_beside_it(site):
    before = registered().sha256
    (site / "neighbour.py").write_text("changed = 1\n")
    assert registered().sha256 == before
    (site / "acme_rope" / "_numbers.py").write_text("import neighbour\n\nDIVISOR = 3\n")
    assert registered().sha256 != before


@pytest.mark.parametrize("value", ["acme_typo", "json.decoder"])
def test_an_entry_point_without_a_package_is_refused(site, value):
    points = f"[lce.plugins]\nacme = {value}\n"
    installed(site, **{"acme_rope-1.2.dist-info/entry_points.txt": points})
    with pytest.raises(SpecError, match=r"acme-rope 1\.2: got the entry point acme .*uninstall"):
        add_plugin_folders(())


def test_a_name_that_is_taken_names_the_package_to_uninstall(site):
    installed(site, **{"acme_rope/methods/yarn.py": METHOD})
    with pytest.raises(SpecError, match=r"uninstall acme-rope 1\.2, or rename the file"):
        add_plugin_folders(())
