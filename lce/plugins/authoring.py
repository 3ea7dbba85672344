"""`lce new` and `lce check`: start a plug-in from a template; check it against its contract."""

import ast
import keyword
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from string import Template

from flows.terminal import say
from lce_core.benchmarks import DataSet
from lce_core.errors import SpecError
from lce_core.registry import plugin_names
from lce_core.study.plugin_folders import PLACES, add_plugin_folders

KINDS = {"method": "methods", "benchmark": "benchmarks", "model": "models", "corpus": "corpora"}
TEMPLATES = Path(__file__).parent / "templates"


def new_plugin(kind: str, name: str, folder: Path, *, attention: bool = False) -> Path:
    """Create a file such as FOLDER/methods/NAME.py from a template; return its path."""
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
    class_name = "".join(part.capitalize() for part in name.split("_"))
    content = Template(template.read_text(encoding="utf-8")).substitute(class_name=class_name)
    if keyword.iskeyword(class_name) or _hides_an_import(content):
        raise SpecError(
            f"lce new {kind}",
            f"{name!r}, for a class {class_name}",
            "a name whose class is no keyword and nothing that the template imports",
            f"choose another name, such as my_{name}",
        )
    file.parent.mkdir(parents=True, exist_ok=True)
    try:
        with file.open("x", encoding="utf-8") as stream:
            stream.write(content)
    except FileExistsError:
        raise SpecError(
            str(file), "an existing file", "a path without a file", "choose another name or folder"
        ) from None
    return file


def _hides_an_import(content: str) -> bool:
    nodes = [*ast.walk(ast.parse(content))]
    imported = {
        each.name for node in nodes if isinstance(node, ast.ImportFrom) for each in node.names
    }
    return any(isinstance(node, ast.ClassDef) and node.name in imported for node in nodes)


@dataclass(frozen=True)
class PluginFile:
    """A user's plug-in: the file FOLDER/PLACE/NAME.py or the package FOLDER/PLACE/NAME/."""

    folder: Path
    place: str
    """Subfolder that decides the type of plug-in: methods, benchmarks, models or corpora."""
    name: str


def check_plugins(path: Path, data_folders: Mapping[str, Path]) -> bool:
    """Check the plug-ins at `path` and print a line for each check; return True if all pass."""
    require_assertions(sys.flags.optimize)
    found = plugin_files(path.absolute())
    add_plugin_folders(tuple({one.folder for one in found}))
    kept = [_kept(one, data_folders) for one in found]
    return all(kept)


def plugin_files(path: Path) -> list[PluginFile]:
    path = path.parent if path.name == "__init__.py" else path
    if path.parent.name in PLACES and path.stem in plugin_names([str(path.parent)]):
        return [PluginFile(path.parents[1], path.parent.name, path.stem)]
    found = [
        PluginFile(path, place, name)
        for place in PLACES
        for name in plugin_names([str(path / place)])
    ]
    if not found:
        raise SpecError(
            f"{path}",
            "no plug-in",
            f"a plug-in file, or a folder with plug-ins in {', '.join(PLACES)}",
            "check the path, or create a plug-in with `lce new`",
        )
    return found


def require_assertions(optimize: int) -> None:
    if optimize:
        raise SpecError(
            "lce check",
            "a Python that skips assertions",
            "a Python that runs them, because the checks are assertions",
            "run Python without -O, and unset PYTHONOPTIMIZE",
        )


def _kept(one: PluginFile, data_folders: Mapping[str, Path]) -> bool:
    # This import loads torch, which takes seconds. A wrong path fails before it.
    from lce_core.contracts.findings import findings

    def data(data_sets: Iterable[DataSet]) -> dict[str, Path]:
        names = {each.name for each in data_sets}
        return {name: folder for name, folder in data_folders.items() if name in names}

    say(f"{one.place}/{one.name}")
    checks: dict[str, str] = {}
    for finding in findings(PLACES[one.place], one.name, data):
        say(f"{'FAIL' if finding.fault else 'ok  '} {finding.check}: {finding.about}")
        if finding.fault:
            # A fault such as a negative frequency fails most checks; print its message once.
            first = checks.setdefault(finding.fault, finding.check)
            say(f"     {finding.fault if first == finding.check else f'as in {first}'}")
    return not checks
