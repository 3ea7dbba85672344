"""Plug-ins of an installed package: found by entry point, recorded with the package's version.

Strategy: write a wheel by hand, unpack it into a folder as an installer would, and run lce in a
subprocess whose PYTHONPATH contains the folder.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from lce_core.store.records import PluginCode
from tests.support.repository import ROOT

METHOD = '''"""Every frequency divided by a constant of the package."""

import numpy as np
from acme_rope._numbers import DIVISOR
from lce_core.evidence import frequencies
from lce_core.methods import ScaledMethod
from lce_core.registry import Source
from lce_core.rope import RopeTable


class Halved(ScaledMethod):
    """Half of every frequency."""

    family = "interpolation"

    def rope_table(self, geometry, lengths):
        """Return inverse frequencies (pairs,) in radians per token."""
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
    "acme_rope-1.2.dist-info/WHEEL": (
        "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    ),
    "acme_rope-1.2.dist-info/entry_points.txt": "[lce.plugins]\nacme = acme_rope\n",
}
CODE = """
import json, sys
from lce_core.methods import METHODS
from lce_core.study.plugin_folders import add_plugin_folders, own_plugins
add_plugin_folders(())
assert "acme_rope" not in sys.modules  # found without an import
code = own_plugins({"method": {"name": "halved"}})["methods/halved"]
print(json.dumps(code.model_dump(mode="json")))
"""


def installed(folder: Path, **changes: str) -> Path:
    """Return the folder into which a wheel with FILES was unpacked."""
    wheel = folder / "acme_rope-1.2-py3-none-any.whl"
    files = {**FILES, **changes}
    record = "acme_rope-1.2.dist-info/RECORD"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
        archive.writestr(record, "".join(f"{name},,\n" for name in [*files, record]))
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def python(site: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": f"{site}{os.pathsep}{ROOT}", **environment},
        cwd=site.parent,
        capture_output=True,
        text=True,
        check=False,
    )


def lce(site: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    code = "import sys; sys.argv[0] = 'lce'; from lce.cli import main; main()"
    return python(site, "-c", code, *arguments, LCE_HOME=str(site.parent / "home"), **environment)


def code_of(site: Path) -> PluginCode:
    done = python(site, "-c", CODE)
    assert done.returncode == 0, done.stderr
    return PluginCode.model_validate_json(done.stdout)


def test_a_plugin_of_an_installed_package_is_listed(tmp_path: Path) -> None:
    done = lce(installed(tmp_path), "methods", "--json")
    assert done.returncode == 0, done.stderr
    assert "halved" in [row["method"] for row in json.loads(done.stdout)]


def test_the_code_of_an_installed_plugin_names_its_package(tmp_path: Path) -> None:
    site = installed(tmp_path)
    code = code_of(site)
    assert code.package == "acme-rope 1.2"
    assert code.file == str(site / "acme_rope" / "methods" / "halved.py")


def test_the_digest_covers_the_package_but_no_library_beside_it(tmp_path: Path) -> None:
    site = installed(tmp_path)
    before = code_of(site).sha256
    (site / "neighbour.py").write_text("changed = 1\n")
    assert code_of(site).sha256 == before
    (site / "acme_rope" / "_numbers.py").write_text("import neighbour\n\nDIVISOR = 3\n")
    assert code_of(site).sha256 != before


def test_a_record_of_a_plugin_from_a_folder_has_no_package() -> None:
    code = PluginCode(version=1, sha256="a", file="mine.py")
    assert "package" not in code.model_dump(mode="json")
    assert PluginCode.model_validate(code.model_dump(mode="json")) == code


@pytest.mark.parametrize("value", ["acme_typo", "acme_rope.methods", "json.decoder"])
def test_an_entry_point_without_a_package_is_refused(tmp_path: Path, value: str) -> None:
    points = {"acme_rope-1.2.dist-info/entry_points.txt": f"[lce.plugins]\nacme = {value}\n"}
    done = lce(installed(tmp_path, **points), "methods")
    assert done.returncode == 2
    assert "installed package acme-rope 1.2: got the entry point acme" in done.stderr
    assert "uninstall it" in done.stderr


def test_a_name_that_is_taken_names_the_package_to_uninstall(tmp_path: Path) -> None:
    done = lce(installed(tmp_path, **{"acme_rope/methods/yarn.py": METHOD}), "methods")
    assert done.returncode == 2
    assert "uninstall acme-rope 1.2, or rename the file" in done.stderr


@pytest.mark.slow
def test_a_run_records_the_package_of_a_plugin(tmp_path: Path) -> None:
    site = installed(tmp_path)
    smoke = (ROOT / "flows" / "studies" / "smoke.yaml").read_text(encoding="utf-8")
    own = smoke.replace("study: smoke", "study: own").replace("{name: yarn,", "{name: halved,")
    (tmp_path / "own.yaml").write_text(own, encoding="utf-8")
    done = lce(site, "run", "own.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    records = [json.loads(file.read_text()) for file in (tmp_path / "home").rglob("record.json")]
    packages = {name: one["package"] for r in records for name, one in r["plugins"].items()}
    assert packages == {"methods/halved": "acme-rope 1.2"}
