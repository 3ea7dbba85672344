"""The digest of a plug-in covers exactly the code of its own folder that its import runs."""

from pathlib import Path

import pytest

from lce_core.store.plugin_code import AcceptedCode, PluginChange, code_digest

FILES = {
    "methods/mine.py": (
        "import json\n"
        "import numpy as np\n"
        "from lce_core.methods import Method, _named\n"
        "from lce_core.benchmarks._across import number\n"
        "from ._relative import one\n"
        "def late():\n"
        "    import lce_core.methods._package.inner\n"
        "    import beside\n"
    ),
    "methods/_named.py": "",
    "methods/_relative.py": "from . import _second\nfrom ..benchmarks import _upwards\n",
    "methods/_second.py": "from ._relative import one\n",  # a circle of imports
    "methods/_package/__init__.py": "",
    "methods/_package/inner.py": "",
    "methods/_unused.py": "",
    "methods/large/__init__.py": "",
    "methods/large/part.py": "from ...methods._second import two\n",
    "methods/table.json": "{}",
    "benchmarks/_across.py": "",
    "benchmarks/_upwards.py": "",
    "benchmarks/_other.py": "",
    "beside.py": "",
    "lce_core/methods/__init__.py": "",  # as in a checkout that holds the plug-in folder
    "lce_core/methods/yarn.py": "",
}


def written(folder: Path) -> Path:
    for name, text in FILES.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return folder


def digest(folder: Path, file: str = "mine.py") -> str:
    rooms = {f"lce_core.{room}": [folder / room] for room in ("methods", "benchmarks")}
    return code_digest(folder / "methods" / file, rooms)


OF_BOTH = {"methods/_second.py", "methods/_relative.py", "benchmarks/_upwards.py"}
OF_FILE = {
    "methods/mine.py",
    "methods/_named.py",
    "methods/_package/__init__.py",
    "methods/_package/inner.py",
    "benchmarks/_across.py",
    "beside.py",
}


@pytest.mark.parametrize(
    ("plugin", "changed"),
    [
        ("mine.py", OF_BOTH | OF_FILE),
        ("large/__init__.py", OF_BOTH | {"methods/large/__init__.py", "methods/large/part.py"}),
    ],
    ids=["file", "package"],
)
def test_the_digest_covers_every_own_module_that_is_imported_and_no_other(
    tmp_path, plugin, changed
):
    folder = written(tmp_path)
    before = digest(folder, plugin)
    seen = set()
    for name, text in FILES.items():
        (folder / name).write_text(f"{text}# A comment.\n", encoding="utf-8")
        if digest(folder, plugin) != before:
            seen.add(name)
        (folder / name).write_text(text, encoding="utf-8")
    assert seen == changed


def test_the_digest_does_not_depend_on_where_the_folder_lies(tmp_path):
    assert digest(written(tmp_path / "one")) == digest(written(tmp_path / "two"))


def test_files_that_python_cannot_read_have_a_digest(tmp_path):
    # The import raises the error, with the line.
    folder = written(tmp_path)
    for content in (b"def :\n", b"\x00", b"\xff\xfe"):
        (folder / "methods" / "_named.py").write_bytes(content)
        assert len(digest(folder)) == 64


def test_acceptance_holds_for_one_version_and_both_digests(tmp_path):
    (tmp_path / "leases").mkdir()

    def change(was: str, now: str, version: int = 1) -> PluginChange:
        return PluginChange(plugin="methods/mine", version=version, was=was, now=now, file="f")

    AcceptedCode(tmp_path).accept([change("a", "b")])
    accepted = AcceptedCode(tmp_path)
    assert accepted.covers(change("a", "b"))
    assert accepted.covers(change("b", "a"))
    assert not accepted.covers(change("a", "c"))
    assert not accepted.covers(change("a", "b", version=2))
    (tmp_path / "accepted_plugins.json").write_text("[", encoding="utf-8")
    assert not AcceptedCode(tmp_path).covers(change("a", "b"))
