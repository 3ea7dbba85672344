"""Python's own documentation and source code: sources, docstrings and help topics of its library.

The domain `code` contains the library's Python files, `prose` the language reference that `help()`
shows, one document per topic, and `docs` the docstrings of each module, formatted as reference
text. Files of site-packages, and files that only some installations have, are not read, so
installing a package changes nothing. A file and its docstrings belong to the same split. Text and
digest differ between Python versions, so `lce pack` exports the documents (`export`).

Source: own; the standard library of the running Python (sysconfig's stdlib folder).
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import sysconfig
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from functools import lru_cache, partial
from pathlib import Path
from typing import ClassVar

from pydantic import Field

from lce_core.corpora import Corpus, Document, Split
from lce_core.corpora._files import split_of
from lce_core.corpora._rows import decoded, unreadable
from lce_core.errors import DataError
from lce_core.evidence import calls
from lce_core.registry import Source
from lce_core.store.file_facts import fact_of

VERSION = 1
SOURCE = Source(paper="own", place="standard library of the running Python", reference="own")

EXCLUDED = frozenset(
    {
        "__pycache__",
        "dist-packages",
        "distutils",
        "encodings",
        "ensurepip",
        "idle_test",
        "idlelib",
        "lib-dynload",
        "lib2to3",
        "pydoc_data",
        "site-packages",
        "test",
        "tests",
        "tkinter",
        "turtledemo",
    }
)
"""Folders that are not read: some installations lack them, or they contain tables, tests or
installed packages."""
GENERATED = ("_sysconfigdata", "sitecustomize", "usercustomize", "config-")
"""Prefixes of files and folders that are not read, because they differ from machine to machine."""
_TOPICS = Path("pydoc_data") / "topics.py"
_EXPORTED, _DIGEST = "documents.jsonl", "digest"

_Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


class LocalText(Corpus):
    """Standard library sources, help topics and docstrings."""

    # Two pairs of equal files, of one and two lines, have a file in each split. Leaving them out
    # would change all training rows of finished studies.
    leaves_out_copies: ClassVar[bool] = False

    held_out_percent: float = Field(default=10.0, gt=0, lt=100)
    """Percentage of files and help topics (by a hash of their names) held out for evaluation."""

    def domains(self) -> tuple[str, ...]:
        return ("code", "docs", "prose")

    def split(self, name: str) -> Split:
        return split_of(name, self.held_out_percent)

    def digest(self, folders: Mapping[str, Path]) -> str:
        if exported := folders.get("local_text"):
            return (exported / _DIGEST).read_text(encoding="ascii")
        root = _library()
        names = _sources(root)
        files = [*(root / name for name in names), root / _TOPICS]
        return fact_of(f"local_text {VERSION}", root, files, partial(_digest, root, names))

    def documents(self, split: Split, folders: Mapping[str, Path]) -> Iterator[Document]:
        """Yield the files, sorted by path and each followed by its docstrings, then help topics.

        If `folders` has "local_text", yield the documents that `export` wrote there.
        """
        if exported := folders.get("local_text"):
            lines = (exported / _EXPORTED).read_text(encoding="utf-8").split("\n")
            documents = (Document(**json.loads(line)) for line in lines if line)
            yield from (
                one for one in documents if self.split(one.name.removesuffix(":docs")) == split
            )
            return
        root = _library()
        for name in _sources(root):
            if self.split(name) != split:
                continue
            source = decoded(_read(root / name), root / name)
            if source.strip():
                yield Document(name, "code", source)
            if docs := docstrings(source, name):
                yield Document(f"{name}:docs", "docs", docs)
        for name, text in _topics().items():
            if self.split(name) == split:
                yield Document(name, "prose", text)

    def export(self, folder: Path) -> None:
        """Write the documents of both splits and their digest, for another version of Python."""
        (folder / _DIGEST).write_text(self.digest({}), encoding="ascii")
        splits: tuple[Split, ...] = ("train", "held_out")
        documents = (one for split in splits for one in self.documents(split, {}))
        lines = (json.dumps(asdict(one)) + "\n" for one in documents)
        with (folder / _EXPORTED).open("w", encoding="utf-8") as file:
            file.writelines(lines)


CORPUS = LocalText
EVIDENCE = tuple(
    calls(
        LocalText.split,
        split,
        f"printf {name} | sha256sum",
        name=name,
        parameters={"held_out_percent": 10.0},
    )
    for name, split in (("json/decoder.py", "train"), ("topics/specialnames", "held_out"))
)


# Cached, because parsing takes most of the time of a pass.
@lru_cache(maxsize=1024)
def docstrings(source: str, path: str) -> str:
    """Format each docstring of a module as a heading with the dotted name, followed by the text.

    The result is empty if the module has no docstrings or this Python cannot parse it.
    """
    with warnings.catch_warnings():
        # The warnings concern code of the standard library, which nobody here can change.
        warnings.simplefilter("ignore", SyntaxWarning)
        try:
            tree = ast.parse(source)
        except SyntaxError:
            return ""
    module = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    return "\n\n".join(_described(tree, module))


def _described(node: _Documented, name: str) -> Iterator[str]:
    heading = name
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        heading = f"{name}({ast.unparse(node.args)})"
    if text := ast.get_docstring(node):
        yield f"{heading}\n{'-' * min(len(heading), 79)}\n{text}"
    for child in node.body:
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _described(child, f"{name}.{child.name}")


def _digest(root: Path, names: list[str]) -> str:
    digest = hashlib.sha256()
    for name in names:
        _feed(digest, name, _read(root / name))
    for name, text in _topics().items():
        _feed(digest, name, text.encode("utf-8"))
    return digest.hexdigest()


def _library() -> Path:
    return Path(sysconfig.get_path("stdlib"))


def _sources(root: Path) -> list[str]:
    """Return the paths of the library's Python files relative to `root`, with slashes, sorted."""
    found = []
    for folder, inner, files in os.walk(root):
        inner[:] = [name for name in inner if _is_library(name)]
        below = Path(folder).relative_to(root)
        kept = (name for name in files if name.endswith(".py") and _is_library(name))
        found += [(below / name).as_posix() for name in kept]
    if not found:
        raise DataError(
            root,
            "no Python sources",
            "the sources of the standard library",
            "use a Python that was installed with them",
        )
    return sorted(found)


def _is_library(name: str) -> bool:
    return name not in EXCLUDED and not name.startswith(GENERATED)


def _topics() -> dict[str, str]:
    from pydoc_data.topics import topics

    return {f"topics/{name}": topics[name] for name in sorted(topics)}


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise unreadable(file, error) from error


def _feed(digest: hashlib._Hash, name: str, data: bytes) -> None:
    # The length distinguishes ("ab", "c") from ("a", "bc").
    digest.update(f"{name}\n{len(data)}\n".encode())
    digest.update(data)
