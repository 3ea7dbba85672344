"""Plug-ins found by file name: `lce_core/methods/yarn.py` is the method `yarn`.

`names()` lists the folder and imports nothing; `load()` imports one module and checks what every
plug-in carries: SOURCE (where the definition comes from), EVIDENCE (reference values with their
origin) and VERSION (raised when its numbers change). EXAMPLES (parameters that the contract tests
try) is needed where a parameter has no default. Files starting with an underscore are not
plug-ins. Folders outside the package take part after `add_folder`.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import math
import pkgutil
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, Generic, Self, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from lce_core.errors import SpecError, did_you_mean
from lce_core.evidence import Evidence
from lce_core.store.identity import canonical_json

MARK = "# <- fill in"
"""Ends the lines of a new plug-in's file that its author still has to write."""

Examples = tuple[Mapping[str, Any], ...]
"""Parameters of a plug-in to try, each a mapping as in a study."""


@dataclass(frozen=True)
class Source:
    """Where a plug-in's definition comes from."""

    paper: str
    """Its arXiv id ("arXiv:2309.00071"), "doi:...", a page ("https://..."), or "own"."""
    place: str
    """Section, equation or table."""
    reference: str
    """Reference repository at a commit ("github.com/OWNER/NAME@" and its 40 hexadecimal digits),
    a page ("https://..."), several of them with "; " between, or "own"."""
    differs: str = ""
    """What is deliberately not as in the paper or the reference, and why."""


class Plugin(BaseModel):
    """Parameters of one plug-in as typed, frozen fields; the class is what a module registers.

    Subclasses are final in the sense of the registry: one per file, named by the file.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )

    plugin_name: ClassVar[str]
    """The file's name, set by the registry."""
    plugin_version: ClassVar[int]
    """The module's VERSION, set by the registry."""
    source: ClassVar[Source]
    evidence: ClassVar[tuple[Evidence, ...]]
    examples: ClassVar[Examples]
    """Parameters that the contract tests try: the module's EXAMPLES, or the defaults alone."""
    summary: ClassVar[str]
    """First line of the module's docstring."""

    def identity(self) -> dict[str, Any]:
        """What goes into fingerprints: name, VERSION, and the parameters that are not defaults.

        A new parameter at its default value therefore changes no old id; a change of a default
        must raise VERSION.
        """
        changed = self.model_dump(mode="json", exclude_defaults=True)
        return {"name": self.plugin_name, "version": self.plugin_version, **changed}

    @classmethod
    def from_identity(cls, payload: Mapping[str, Any]) -> Self:
        """Inverse of `identity`; the VERSION must be the installed one.

        Raises:
          SpecError: the payload was made by another VERSION of this plug-in.
        """
        if payload["version"] != cls.plugin_version:
            raise SpecError(
                f"{cls.__module__}",
                f"version {payload['version']}",
                f"the installed plug-in {cls.plugin_name!r} is version {cls.plugin_version}",
                "Plan the study again with this installation.",
            )
        fields = {key: payload[key] for key in payload if key not in ("name", "version")}
        return cls.model_validate_json(_json(fields))


P = TypeVar("P", bound=Plugin)


class Registry(Generic[P]):
    """Plug-ins of one kind in one package.

    Args:
      package: dotted name of the folder, such as "lce_core.methods".
      attribute: name each module gives its class, such as "METHOD".
      kind: the base class every plug-in of this folder extends.
    """

    def __init__(self, package: str, attribute: str, kind: type[P]) -> None:
        self.package, self.attribute, self.kind = package, attribute, kind

    def names(self) -> list[str]:
        """Sorted names of all plug-ins; imports none of them."""
        search = importlib.import_module(self.package).__path__
        found = (module.name for module in pkgutil.iter_modules(search))
        return sorted(name for name in found if not name.startswith("_"))

    def add_folder(self, folder: Path) -> None:
        """Lets every `<name>.py` in `folder` take part, as if it lay in the package."""
        path = importlib.import_module(self.package).__path__
        if folder.is_dir() and str(folder) not in path:
            path.append(str(folder))
            importlib.invalidate_caches()

    def load(self, name: str, where: str = "") -> type[P]:
        """The class registered as `name`.

        Raises:
          SpecError: no such plug-in (with "did you mean"), or its file lacks a required part.
        """
        where = where or self.package
        if not self._is_imported(name) and name not in self.names():
            kind = self.attribute.lower().replace("_", " ")
            raise SpecError(where, repr(name), f"no such {kind}", did_you_mean(name, self.names()))
        if f"{self.package}.{name}" not in sys.modules:
            self._refuse_marks(name)
        module = importlib.import_module(f"{self.package}.{name}")
        for part in (self.attribute, "SOURCE", "EVIDENCE", "VERSION"):
            if not hasattr(module, part):
                raise SpecError(
                    f"{module.__file__}",
                    f"no {part}",
                    f"a plug-in of {self.package} defines {self.attribute}, SOURCE, EVIDENCE and"
                    " VERSION",
                    f"Add {part} to the file.",
                )
        plugin = getattr(module, self.attribute)
        if not (isinstance(plugin, type) and issubclass(plugin, self.kind)):
            raise SpecError(
                f"{module.__file__}",
                f"{self.attribute} = {plugin!r}",
                f"{self.attribute} is a subclass of {self.kind.__name__}",
                f"Let the class extend {self.kind.__module__}.{self.kind.__name__}.",
            )
        plugin.plugin_name, plugin.plugin_version = name, module.VERSION
        plugin.source, plugin.evidence = module.SOURCE, tuple(module.EVIDENCE)
        plugin.examples = _examples(plugin, module)
        plugin.summary = (module.__doc__ or "").strip().split("\n", 1)[0]
        return plugin

    def _refuse_marks(self, name: str) -> None:
        spec = importlib.util.find_spec(f"{self.package}.{name}")
        if spec is None or spec.origin is None:
            return
        lines = Path(spec.origin).read_text(encoding="utf-8").splitlines()
        marked = [number for number, line in enumerate(lines, start=1) if MARK in line]
        if marked:
            raise SpecError(
                f"{spec.origin}, line {marked[0]}",
                f"{lines[marked[0] - 1].strip()!r}, 1 of {len(marked)} lines marked {MARK!r}",
                "lines that are written",
                "fill them in and remove the marks",
            )

    def _is_imported(self, name: str) -> bool:
        # Plans ask thousands of times, and listing the folder takes half a millisecond.
        return name.isidentifier() and name[0] != "_" and f"{self.package}.{name}" in sys.modules

    def parse(self, entry: Mapping[str, Any], where: str) -> P:
        """Builds a plug-in from `{"name": ..., **parameters}` as written in a study.

        Raises:
          SpecError: unknown name, unknown parameter (with "did you mean"), or a bad value.
        """
        plugin = self.load(_name_of(entry, where), where)
        fields = {key: value for key, value in entry.items() if key != "name"}
        try:
            return plugin.model_validate_json(_json(fields, where))
        except ValidationError as error:
            raise spec_error(error, where, plugin, label=plugin.plugin_name) from None

    def from_identity(self, payload: Mapping[str, Any]) -> P:
        """Rebuilds the plug-in that wrote `payload` with `Plugin.identity`."""
        return self.load(payload["name"]).from_identity(payload)


def _examples(plugin: type[Plugin], module: ModuleType) -> Examples:
    needed = [name for name, field in plugin.model_fields.items() if field.is_required()]
    examples = tuple(getattr(module, "EXAMPLES", () if needed else ({},)))
    if not examples:
        raise SpecError(
            f"{module.__file__}",
            "no EXAMPLES",
            "parameters to try, at least one mapping of them"
            + (f"; {', '.join(needed)} has no default" if needed else ""),
            "add EXAMPLES = ({...},) to the file" if needed else "add {} to EXAMPLES, or remove it",
        )
    return examples


def spec_error(
    error: ValidationError, where: str, model: type[BaseModel], label: str = ""
) -> SpecError:
    """Turns pydantic's complaints into one place, value, rule and remedy.

    A key that is unknown comes first: what else is wrong most often follows from it.
    """
    found = error.errors(include_url=False)
    first = min(found, key=lambda one: one["type"] != "extra_forbidden")
    others = "" if len(found) == 1 else f" ({len(found) - 1} more like this)"
    place = where + "".join(
        f"[{part}]" if isinstance(part, int) else f"{_joint(where)}{part}" for part in first["loc"]
    )
    known = [name for name in model.model_fields if name != "name"]
    if first["type"] == "extra_forbidden":
        takes = f"{label or model.__name__} takes {', '.join(known) or 'no parameters'}"
        remedy = did_you_mean(str(first["loc"][-1]), known) if len(first["loc"]) == 1 else ""
        return SpecError(place, "unknown key", takes, (remedy or "Remove the key.") + others)
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "value_error":  # a rule between keys: the message names them
        return SpecError(place, message, "keys must fit together", "Change one of them." + others)
    if first["type"] == "missing":
        return SpecError(place, "nothing", "this key is required", "Add the key." + others)
    rule = message[:1].lower() + message[1:]
    return SpecError(place, repr(first["input"]), rule, _remedy(first["input"]) + others)


def _joint(where: str) -> str:
    return " " if where.endswith(":") else "."


def _remedy(given: object) -> str:
    if isinstance(given, str):
        with contextlib.suppress(ValueError):
            if math.isfinite(number := float(given)):
                spelled = re.sub(r"^([^.]*)e", r"\1.0e", given, flags=re.IGNORECASE)
                return f"YAML reads this as text; write {spelled if 'e' in spelled else number:}."
    return "Give a value that obeys the rule."


def _name_of(entry: Mapping[str, Any], where: str) -> str:
    name = entry.get("name")
    if not isinstance(name, str):
        raise SpecError(where, repr(dict(entry)), "an entry has a name", "Write {name: ...}.")
    return name


def _json(fields: Mapping[str, Any], where: str = "parameters") -> str:
    # Strict JSON mode takes a list for a tuple field and still refuses 1.0 for an int, which
    # strict Python mode does not do.
    return canonical_json(fields, where)
