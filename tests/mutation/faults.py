"""The table of faults: what each one changes, and which tests should notice first.

`faults.toml` has a table for each area and a line for each fault, under the fault's name:

    file      the file it changes, or a pattern of files of which it changes one
    old, new  the text it replaces, which occurs there exactly once, and what stands there instead
    tests     test files or tests that should fail
    survives  only for a fault that no test can notice: why
"""

import tomllib
from dataclasses import dataclass
from pathlib import Path

TABLE = Path(__file__).with_name("faults.toml")


class TableError(Exception):
    """The table does not fit the code."""


@dataclass(frozen=True)
class Fault:
    """One small fault."""

    area: str
    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    survives: str | None = None

    def planted(self, root: Path) -> tuple[Path, str]:
        """The file to change, and its text with the fault in it.

        Raises:
          TableError: the old text does not occur exactly once, or nothing would change.
        """
        texts = {path: path.read_text("utf-8") for path in sorted(root.glob(self.file))}
        found = sum(text.count(self.old) for text in texts.values())
        if found != 1:
            raise TableError(f"{self.name}: {self.file} has {found} times: {self.old}")
        if self.old == self.new:
            raise TableError(f"{self.name}: old and new are the same")
        path = next(path for path, text in texts.items() if self.old in text)
        return path, texts[path].replace(self.old, self.new)

    def missing_tests(self, root: Path) -> list[str]:
        """Tests of the table that do not exist."""
        return [test for test in self.tests if not _exists(root, test)]

    def folder(self, root: Path) -> str:
        """The folder of tests that mirrors the file's."""
        mirrored = Path("tests") / Path(self.file).parent
        while not (root / mirrored).is_dir():
            mirrored = mirrored.parent
        return mirrored.as_posix()


def read_table(file: Path = TABLE) -> list[Fault]:
    """All faults in the order of the table.

    Raises:
      TableError: a line without a field, with one too many, or with a name that another has.
    """
    faults: list[Fault] = []
    for area, lines in tomllib.loads(file.read_text("utf-8")).items():
        for name, fields in lines.items():
            try:
                faults.append(Fault(area, name, **{**fields, "tests": tuple(fields["tests"])}))
            except (TypeError, KeyError) as error:
                raise TableError(f"{name}: {error}") from None
    names = [fault.name for fault in faults]
    if twice := {name for name in names if names.count(name) > 1}:
        raise TableError(f"names that occur twice: {', '.join(sorted(twice))}")
    return faults


def _exists(root: Path, test: str) -> bool:
    file, _, function = test.partition("::")
    if not (root / file).is_file():
        return False
    return not function or f"\ndef {function}(" in (root / file).read_text("utf-8")
