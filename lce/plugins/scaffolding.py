"""`lce new`: create the file of a plug-in from a template: a complete example or marked lines."""

from __future__ import annotations

import keyword
from pathlib import Path
from string import Template

from lce_core.errors import SpecError
from lce_core.study.plugin_folders import PLACES

KINDS = {"method": "methods", "benchmark": "benchmarks", "model": "models", "corpus": "corpora"}
"""Folder of plug-ins by the kind that `lce new` takes."""
TEMPLATES = Path(__file__).parent / "templates"


def new_plugin(kind: str, name: str, folder: Path, *, attention: bool = False) -> Path:
    """Create a file such as FOLDER/methods/NAME.py from a template; return its path.

    Args:
      folder: folder of plug-ins, as for `--plugins`; created if it does not exist.
      attention: write a method with its own attention scheme. This file is complete.

    Raises:
      SpecError: if the kind is unknown or has no attention, the name is invalid or in use, or the
        file exists.
    """
    if kind not in KINDS:
        raise SpecError("lce new", repr(kind), " or ".join(KINDS), "write one of these kinds")
    if attention and kind != "method":
        raise SpecError(
            "lce new",
            f"{kind} --attention",
            "--attention only for a method",
            "leave --attention out, or write `lce new method NAME --attention`",
        )
    registry = PLACES[KINDS[kind]]
    if not name.isidentifier() or keyword.iskeyword(name) or name[0] == "_":
        raise SpecError(
            f"lce new {kind}",
            repr(name),
            "a name of letters, digits and underscores that starts with a letter",
            f"choose another name, such as my_{kind}",
        )
    if name in registry.names():
        raise SpecError(
            f"lce new {kind}",
            f"{name!r}, the name of an existing {kind}",
            f"a name that no {kind} has",
            "choose another name",
        )
    file = folder / KINDS[kind] / f"{name}.py"
    template = TEMPLATES / f"{'attention' if attention else kind}.py.txt"
    content = Template(template.read_text(encoding="utf-8"))
    class_name = "".join(part.capitalize() for part in name.split("_"))
    file.parent.mkdir(parents=True, exist_ok=True)
    try:
        with file.open("x", encoding="utf-8") as stream:
            stream.write(content.substitute(class_name=class_name))
    except FileExistsError:
        raise SpecError(
            str(file), "an existing file", "a path without a file", "choose another name or folder"
        ) from None
    return file
