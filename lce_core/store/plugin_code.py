"""Detect that the code of a user's own plug-in changed while its VERSION did not.

A record contains a digest of the plug-in's code, as its author may forget to raise VERSION. The
plug-ins of lce need none, because the record states lce's commit. A user can declare old and new
code equivalent (`AcceptedCode`), so that finished steps are not computed again.
"""

import ast
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lce_core.store.lease import locked
from lce_core.store.odd_files import read_mapping
from lce_core.store.records import write_json

ACCEPTED = "accepted_plugins.json"

PluginFolders = Mapping[str, Sequence[Path]]
"""The user's plug-in folders, by lce package such as "lce_core.methods"."""


@dataclass(frozen=True)
class PluginChange:
    """A plug-in whose code changed since a step finished, without a new VERSION."""

    plugin: str
    """Folder and name, such as "methods/mine"."""
    version: int
    was: str
    """Code digest of the finished step."""
    now: str
    """Digest of the present code."""
    file: str

    def __str__(self) -> str:
        return f"{self.plugin} changed, VERSION {self.version} did not ({self.file})"


class AcceptedCode:
    """The user's declarations that old and new code of a plug-in give equal results."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._file = home / ACCEPTED
        self._groups = self._read()

    def covers(self, change: PluginChange) -> bool:
        return {change.was, change.now} <= set(self._groups.get(_key(change), ()))

    def accept(self, changes: Iterable[PluginChange]) -> None:
        with locked(self._home / "leases"):
            groups = self._read()  # another process may have accepted something meanwhile
            for change in changes:
                group = {*groups.get(_key(change), ()), change.was, change.now}
                groups[_key(change)] = sorted(group)
            write_json(self._file, groups)
        self._groups = groups

    def _read(self) -> dict[str, list[str]]:
        try:
            content = read_mapping(self._file)
        except (OSError, ValueError):
            # A missing or damaged file accepts nothing; the next `accept` rewrites it.
            return {}
        return {key: digests for key, digests in content.items() if isinstance(digests, list)}


def _key(change: PluginChange) -> str:
    return f"{change.plugin} VERSION {change.version}"


def code_digest(file: Path, user_folders: PluginFolders) -> str:
    """Return a sha256 over names and contents of a plug-in's file and its helper modules.

    These are the modules in or beside the user's plug-in folders that the file imports, directly or
    through other helpers; an imported package counts with all its modules. Data files, installed
    libraries and modules imported by a computed name do not count. Names are relative to the
    plug-in folder, so that the folder can move.
    """
    contents: dict[str, bytes] = {}
    waiting = _modules(file.parent) if file.name == "__init__.py" else [file]
    while waiting:
        one = waiting.pop()
        package, folder = _package_and_folder(one, user_folders)
        name = f"{package}/{one.relative_to(folder).as_posix()}"
        if name not in contents:
            contents[name] = one.read_bytes()
            own = [*filter(None, package.split(".")), *one.parent.relative_to(folder).parts]
            for imported in _imports(contents[name], own):
                waiting += _files_of_module(imported, folder, user_folders)
    total = hashlib.sha256()
    for name, content in sorted(contents.items()):
        total.update(f"{name} {hashlib.sha256(content).hexdigest()}\n".encode())
    return total.hexdigest()


def _package_and_folder(file: Path, user_folders: PluginFolders) -> tuple[str, Path]:
    """Return the lce package and plug-in folder of a user's file.

    A helper module beside a plug-in folder belongs to "" and the folder's parent.
    """
    for package, folders in user_folders.items():
        for folder in folders:
            if file.is_relative_to(folder):
                return package, folder
    roots = (folder.parent for folders in user_folders.values() for folder in folders)
    return "", next(root for root in roots if file.is_relative_to(root))


def _imports(content: bytes, package: list[str]) -> Iterator[list[str]]:
    """Yield the absolute names that a module of `package` imports, split at dots."""
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError, RecursionError):
        return  # importing the file will report the error with its line
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name.split(".")
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = node.module.split(".") if node.module else []
            # In `from package import name`, `name` can be a module or an attribute.
            for alias in node.names:
                yield [*base, *module, *alias.name.split(".")]


def _files_of_module(name: list[str], folder: Path, user_folders: PluginFolders) -> list[Path]:
    for package, folders in user_folders.items():
        parts = package.split(".")
        if name[: len(parts)] == parts and len(name) > len(parts):
            return _first_found(folders, name[len(parts)])
    if any(package.split(".")[0] == name[0] for package in user_folders):
        return []  # a module of lce, even if the plug-in folder is inside lce's checkout
    is_plugin_folder = any(folder in folders for folders in user_folders.values())
    root = folder.parent if is_plugin_folder else folder
    if name[0] == root.name and len(name) > 1:  # a module of the installed package `root`
        start = root / "__init__.py"
        return [*_first_found((root,), name[1]), *([start] if start.is_file() else [])]
    # The plug-in folder may be on PYTHONPATH, so absolute names can refer to files in it.
    return _first_found((folder, root), name[0])


def _first_found(folders: Iterable[Path], name: str) -> list[Path]:
    for folder in folders:
        if (folder / name / "__init__.py").is_file() or any((folder / name).glob("*.py")):
            return _modules(folder / name)
        if (folder / f"{name}.py").is_file():
            return [folder / f"{name}.py"]
    return []


def _modules(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*.py") if path.is_file()]
