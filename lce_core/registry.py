"""Find plug-ins by file name: `lce_core/methods/yarn.py` is the method `yarn`.

A plug-in file defines its class and the constants SOURCE (where the definition comes from),
EVIDENCE (reference values with their origin) and VERSION (increased when its numbers change). It
also defines EXAMPLES (parameters that the contract tests try) if a parameter has no default. Files
starting with an underscore are not plug-ins.
"""

import importlib
import importlib.util
import json
import pkgutil
import sys
import traceback
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, Generic, Self, TypeVar

from pydantic import BaseModel, ValidationError

from lce_core.errors import LceError, SpecError, did_you_mean
from lce_core.evidence import Evidence
from lce_core.recipe import STRICT
from lce_core.spec_errors import spec_error
from lce_core.store.identity import canonical_json
from lce_core.store.plugin_code import code_digest
from lce_core.store.records import PluginCode

Examples = tuple[Mapping[str, Any], ...]
"""A plug-in's EXAMPLES: sets of parameters as in a study file."""
MARK = "# <- fill in"
"""Comment on each line that the author must complete; `load` rejects a file that contains it."""


@dataclass(frozen=True)
class Source:
    """Paper and reference code that define a plug-in."""

    paper: str
    """arXiv id ("arXiv:2309.00071"), "doi:...", a page ("https://..."), or "own"."""
    place: str
    """Section, equation or table of the paper."""
    reference: str
    """Reference repository at a commit ("github.com/OWNER/NAME@" with 40 hexadecimal digits), a
    page ("https://..."), several of these separated by "; ", or "own"."""
    differs: str = ""
    """Deliberate differences from the paper or the reference, and their reasons."""


class Plugin(BaseModel):
    """Base class of plug-ins. The fields of a subclass are the plug-in's parameters.

    A plug-in is one class in one file and has the file's name. Plug-ins of lce that differ only in
    values may share a file; see `table` of `Registry`.
    """

    model_config = STRICT

    plugin_name: ClassVar[str]
    """Name of the file, set by the registry."""
    plugin_version: ClassVar[int]
    """VERSION of the module, set by the registry."""
    source: ClassVar[Source]
    evidence: ClassVar[tuple[Evidence, ...]]
    examples: ClassVar[Examples]
    """Parameters that the contract tests try: the module's EXAMPLES, or the defaults alone."""
    summary: ClassVar[str]
    """First line of the module's docstring."""

    def identity(self) -> dict[str, Any]:
        """Return name, VERSION and the parameters that differ from their defaults.

        Fingerprints contain the result, so a new parameter with a default changes no existing id.
        Increase VERSION when a default changes.
        """
        changed = self.model_dump(mode="json", exclude_defaults=True)
        return {"name": self.plugin_name, "version": self.plugin_version, **changed}

    @classmethod
    def from_identity(cls, payload: Mapping[str, Any]) -> Self:
        """Rebuild a plug-in from the output of `identity`."""
        if payload["version"] != cls.plugin_version:
            raise SpecError(
                f"{cls.__module__}",
                f"the installed version {cls.plugin_version} of {cls.plugin_name!r}",
                f"version {payload['version']}, which the plan names",
                "plan the study again with this installation",
            )
        fields = {key: payload[key] for key in payload if key not in ("name", "version")}
        return cls.model_validate_json(canonical_json(fields, "parameters"))


P = TypeVar("P", bound=Plugin)
_PACKAGES: list[str] = []
"""Packages of all registries. A user's plug-in may import helper modules that the user added to any
of these, so the plug-in's code digest searches all."""


def plugin_names(folders: Iterable[str]) -> list[str]:
    found = (module.name for module in pkgutil.iter_modules(folders))
    return sorted(name for name in found if not name.startswith("_"))


class Registry(Generic[P]):
    """Finds and loads the plug-ins of one package, such as all methods.

    Args:
      attribute: name under which each module registers its class, such as "METHOD".
      table: dotted name of a module whose TABLE lists further plug-in classes, or None. Each class
        states its name, version, source and evidence as class attributes.
    """

    def __init__(
        self, package: str, attribute: str, kind: type[P], *, table: str | None = None
    ) -> None:
        self.package, self.attribute, self.kind, self.table = package, attribute, kind, table
        _PACKAGES.append(package)
        self._loaded: dict[str, type[P]] = {}
        self._digests: dict[str, str | None] = {}
        self._known: dict[str, P] = {}
        self._packages: dict[Path, str] = {}

    def names(self) -> list[str]:
        files = plugin_names(importlib.import_module(self.package).__path__)
        return sorted([*files, *self._table])

    @cached_property
    def _table(self) -> dict[str, type[P]]:
        listed = importlib.import_module(self.table).TABLE if self.table else ()
        for plugin in listed:
            plugin.examples, plugin.summary = ({},), _first_line(plugin.__doc__)
        return {plugin.plugin_name: plugin for plugin in listed}

    def add_folder(self, folder: Path, package: str | None = None) -> None:
        """Add every `<name>.py` in `folder` as a plug-in; ignore a folder that does not exist.

        `package` is name and version of the installed package that contains the folder.

        Raises:
          SpecError: if a file has the name of an existing plug-in.
        """
        path = importlib.import_module(self.package).__path__
        if not folder.is_dir() or str(folder) in path:
            return
        for name in plugin_names([str(folder)]):
            if name in self.names():
                raise SpecError(
                    str(folder / name),
                    f"{name!r}, the name of another plug-in of {self.package}",
                    "a unique name",
                    f"uninstall {package}, or rename the file" if package else "rename the file",
                )
        if package:
            self._packages[folder] = package
        path.append(str(folder))
        importlib.invalidate_caches()

    def load(self, name: str, where: str = "") -> type[P]:
        if name in self._table:
            return self._table[name]
        # A plug-in whose module was removed is imported anew: its file may have changed.
        if name in self._loaded and f"{self.package}.{name}" in sys.modules:
            return self._loaded[name]
        if name not in self.names():
            kind = self.attribute.lower().replace("_", " ")
            raise SpecError(
                where or self.package,
                repr(name),
                f"the name of a {kind}",
                did_you_mean(name, self.names()),
            )
        self._refuse_marks(name)
        # Computed before the import, so that the digest is never newer than the code that runs.
        self._digests[name] = self._digest(name)
        module = self._imported(name)
        for part in (self.attribute, "SOURCE", "EVIDENCE", "VERSION"):
            if not hasattr(module, part):
                raise SpecError(
                    f"{module.__file__}",
                    f"a plug-in without {part}",
                    f"{self.attribute}, SOURCE, EVIDENCE and VERSION in every plug-in",
                    f"add {part} to the file",
                )
        plugin = getattr(module, self.attribute)
        if not (isinstance(plugin, type) and issubclass(plugin, self.kind)):
            raise SpecError(
                f"{module.__file__}",
                f"{self.attribute} = {plugin!r}",
                f"a subclass of {self.kind.__name__}",
                f"let the class extend {self.kind.__module__}.{self.kind.__name__}",
            )
        _refuse_shadows(plugin, self.kind, module)
        plugin.plugin_name, plugin.plugin_version = name, module.VERSION
        plugin.source, plugin.evidence = module.SOURCE, tuple(module.EVIDENCE)
        plugin.examples = _examples(plugin, module)
        plugin.summary = _first_line(module.__doc__)
        if missing := sorted(
            name for name in self.kind.__class_vars__ if not hasattr(plugin, name)
        ):
            raise SpecError(
                f"{module.__file__}",
                f"the class {plugin.__name__} without {', '.join(missing)}",
                f"a value for every class attribute that {self.kind.__name__} declares",
                f"add {missing[0]} to the class",
            )
        self._loaded[name] = plugin
        return plugin

    def code(self, name: str) -> PluginCode | None:
        """Return VERSION, code digest, file and package of a user's plug-in; None if it is lce's.

        The digest is that of the imported code, even if the file changed after the import.
        """
        plugin = self.load(name)
        sha256 = self._digests.get(name)
        if sha256 is None:
            return None
        file = Path(str(sys.modules[f"{self.package}.{name}"].__file__))
        found = (name for folder, name in self._packages.items() if file.is_relative_to(folder))
        return PluginCode(
            version=plugin.plugin_version, sha256=sha256, file=str(file), package=next(found, None)
        )

    def _file(self, name: str) -> Path | None:
        spec = importlib.util.find_spec(f"{self.package}.{name}")
        return None if spec is None or spec.origin is None else Path(spec.origin)

    def _digest(self, name: str) -> str | None:
        file, folders = self._file(name), own_folders()
        if file is None or not any(file.is_relative_to(one) for one in folders[self.package]):
            return None
        return code_digest(file, folders)

    def _imported(self, name: str) -> ModuleType:
        try:
            return importlib.import_module(f"{self.package}.{name}")
        except LceError:
            raise
        except Exception as error:
            file = str(self._file(name) or name)
            line = _last_line(error, file)
            if isinstance(error, SyntaxError):  # a helper that the plug-in imports may have it
                file, line = error.filename or file, error.lineno
            raise SpecError(
                f"{file}, line {line}" if line else file,
                f"{type(error).__name__}: {error}",
                "a file that Python can import",
                "correct the file, or install the packages that it imports",
            ) from error

    def _refuse_marks(self, name: str) -> None:
        file = self._file(name)
        if file is None:
            return
        # Python reads a file in the encoding that it declares, and reports one without.
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
        marked = [number for number, line in enumerate(lines, start=1) if MARK in line]
        if marked:
            raise SpecError(
                f"{file}, line {marked[0]}",
                f"{lines[marked[0] - 1].strip()!r}, 1 of {len(marked)} lines marked {MARK!r}",
                "every marked line filled in",
                "fill them in and remove the marks",
            )

    def parse(self, entry: Mapping[str, Any], where: str) -> P:
        """Build a plug-in from an entry of a study file: {"name": ..., **parameters}."""
        name = entry.get("name")
        if not isinstance(name, str):
            raise SpecError(where, repr(dict(entry)), "an entry with a name", "write {name: ...}")
        plugin = self.load(name, where)
        fields = {key: value for key, value in entry.items() if key != "name"}
        try:
            # Strict JSON mode accepts a list for a tuple field and refuses 1.0 for an int. Strict
            # Python mode refuses both.
            return plugin.model_validate_json(canonical_json(fields, where))
        except ValidationError as error:
            raise spec_error(error, where, plugin, label=plugin.plugin_name) from None

    def from_identity(self, payload: Mapping[str, Any]) -> P:
        """Return the plug-in of the identity `payload`; equal payloads give the same object."""
        plugin = self.load(payload["name"])
        if payload["version"] != plugin.plugin_version:
            return plugin.from_identity(payload)  # raises the error
        # Cached, because the steps of a plan contain the same few payloads thousands of times.
        key = json.dumps(payload, sort_keys=True)
        known = self._known.get(key)
        # The type differs if the module was imported again.
        if type(known) is not plugin:
            known = self._known[key] = plugin.from_identity(payload)
        return known


def _first_line(docstring: str | None) -> str:
    return (docstring or "").strip().split("\n", 1)[0]


def own_folders() -> dict[str, list[Path]]:
    found = {}
    for package in _PACKAGES:
        module = importlib.import_module(package)
        shipped = str(Path(str(module.__file__)).parent)
        found[package] = [Path(folder) for folder in module.__path__ if folder != shipped]
    return found


def _last_line(error: Exception, file: str) -> int | None:
    frames = traceback.extract_tb(error.__traceback__)
    return next((one.lineno for one in reversed(frames) if one.filename == file), None)


def _refuse_shadows(plugin: type[Plugin], kind: type[Plugin], module: ModuleType) -> None:
    """Refuse a field with the name of an attribute of `kind`, or of another key of `identity`.

    A plug-in may change the default of a field of `kind`, but not its type.
    """
    own = kind.model_fields
    shadows = [
        name
        for name, field in plugin.model_fields.items()
        if name in ("name", "version")
        or (field.annotation != own[name].annotation if name in own else _is_used(plugin, name))
    ]
    if shadows:
        raise SpecError(
            f"{module.__file__}",
            f"the field {shadows[0]!r}, whose name {kind.__name__} uses itself",
            f"fields whose names {kind.__name__} does not use",
            "rename the field",
        )


def _is_used(plugin: type[Plugin], name: str) -> bool:
    """Return True if a base class that lce offers has another attribute of the field's name."""
    bases = (base for base in plugin.__mro__[1:] if base.__module__.startswith("lce_core."))
    return any(
        hasattr(base, name) and name not in base.model_fields
        for base in bases
        if issubclass(base, Plugin)
    )


def _examples(plugin: type[Plugin], module: ModuleType) -> Examples:
    needed = [name for name, field in plugin.model_fields.items() if field.is_required()]
    examples = tuple(getattr(module, "EXAMPLES", () if needed else ({},)))
    if not examples:
        raise SpecError(
            f"{module.__file__}",
            "no EXAMPLES",
            "at least one mapping of parameters that the contract tests can try"
            + (f", because these parameters have no default: {', '.join(needed)}" * bool(needed)),
            "add EXAMPLES = ({...},) to the file" if needed else "add {} to EXAMPLES, or remove it",
        )
    return examples
