"""What happens between a name in a study and a plug-in's class, and the errors on the way."""

import importlib
import re
import sys
from collections.abc import Callable, Iterator

import pytest

from lce_core.errors import SpecError
from lce_core.methods import METHODS
from tests.support.plugin_copies import plugins_removed_after

WHOLE = '''"""A complete plug-in."""

from lce_core.methods import Method
from lce_core.registry import Source


class Whole(Method):
    """Nothing of its own."""

    family = "none"


METHOD = Whole
SOURCE = Source(paper="own", place="here", reference="own")
EVIDENCE = ()
VERSION = 3
'''


@pytest.fixture
def plugin(tmp_path) -> Iterator[Callable[[str, str], None]]:
    def write(name: str, text: str) -> None:
        (tmp_path / f"{name}.py").write_text(text)
        METHODS.add_folder(tmp_path)
        importlib.invalidate_caches()

    with plugins_removed_after():
        yield write


def test_an_unknown_name_is_answered_with_the_nearest_known_one():
    with pytest.raises(SpecError, match=r"^study\.yaml: methods\[2\]: got 'yarm'.* write 'yarn'"):
        METHODS.parse({"name": "yarm"}, "study.yaml: methods[2]")
    with pytest.raises(SpecError, match="the name of a method"):  # an underscore: no plug-in
        METHODS.load("_ntk")


@pytest.mark.parametrize("part", ["METHOD", "SOURCE", "EVIDENCE", "VERSION"])
def test_a_plugin_that_lacks_a_part_is_refused(plugin, part):
    text = "\n".join(line for line in WHOLE.splitlines() if not line.startswith(f"{part} = "))
    plugin(f"lacks_{part.lower()}", text)
    with pytest.raises(SpecError, match=rf"lacks_{part.lower()}\.py: .*without {part}"):
        METHODS.load(f"lacks_{part.lower()}")


@pytest.mark.parametrize("declared", ["", "# -*- coding: latin-1 -*-\n"])
def test_a_file_in_latin_1_is_read_if_it_says_so(plugin, tmp_path, declared):
    name = "declared_latin" if declared else "plain_latin"
    plugin(name, "")
    text = WHOLE.replace("A complete plug-in", "Un plug-in caf\xe9")
    (tmp_path / f"{name}.py").write_bytes(f"{declared}{text}".encode("latin-1"))
    if declared:
        assert METHODS.load(name).summary == "Un plug-in caf\xe9."
        return
    with pytest.raises(SpecError, match=rf"{name}\.py.*SyntaxError: .*utf-8"):
        METHODS.load(name)


@pytest.mark.parametrize(
    ("name", "added", "line", "found"),
    [
        ("unclosed", "def broken(:\n    pass\n", 1, "SyntaxError: invalid syntax"),
        ("absent", "from lce_core.methods import Absent\n", 1, "ImportError: cannot import name"),
        ("dividing", "x = 1\nx / 0\n", 2, "ZeroDivisionError: division by zero"),
    ],
)
def test_a_file_that_cannot_be_imported_is_named_with_its_line(
    plugin, tmp_path, name, added, line, found
):
    plugin(name, WHOLE + added)
    at = WHOLE.count("\n") + line
    with pytest.raises(SpecError, match=re.escape(found)) as caught:
        METHODS.load(name)
    assert str(caught.value).startswith(f"{tmp_path / name}.py, line {at}: ")
    plugin(name, WHOLE)  # Mended, it can be loaded in the same process.
    method = METHODS.load(name)
    loaded = method.plugin_name, method.plugin_version, method.summary
    assert loaded == (name, 3, "A complete plug-in.")


@pytest.mark.parametrize("value", ["dict", "Whole()", "'yarn'"])
def test_a_plugin_of_another_kind_is_refused(plugin, value):
    plugin("other_kind", WHOLE.replace("METHOD = Whole", f"METHOD = {value}"))
    with pytest.raises(SpecError, match=r"other_kind\.py: got METHOD = .* a subclass of Method"):
        METHODS.load("other_kind")


@pytest.mark.parametrize(
    "field", ["logit_scale: float = 1.3", "layers: int = 1", "version: int = 2", "name: str = 'x'"]
)
def test_a_parameter_with_a_name_that_every_method_uses_is_refused(plugin, field):
    plugin("reserved", WHOLE.replace("    family", f"    {field}\n    family"))
    with pytest.raises(SpecError, match=rf"reserved\.py: got the field '{field.split(':')[0]}'"):
        METHODS.load("reserved")


def test_a_class_attribute_that_the_base_class_only_declares_is_asked_for(plugin):
    plugin("lacks_family", WHOLE.replace('    family = "none"\n', ""))
    with pytest.raises(SpecError, match=r"Whole without family; .* add family to the class"):
        METHODS.load("lacks_family")


@pytest.mark.parametrize(
    ("entry", "words"),
    [({}, "an entry with a name"), ({"name": "pi", "scale": float("nan")}, r"here\.scale")],
)
def test_an_entry_without_a_name_or_with_a_number_that_is_not_finite_is_refused(entry, words):
    with pytest.raises(SpecError, match=words):
        METHODS.parse(entry, "here")


def test_equal_identities_give_one_object_and_other_parameters_another():
    yarn = METHODS.parse({"name": "yarn"}, "test")
    explicit = METHODS.parse({"name": "yarn", "beta_fast": 32, "truncate": True}, "test")
    assert explicit.identity() == yarn.identity()
    first = METHODS.from_identity(yarn.identity())
    assert first == yarn
    assert METHODS.from_identity(yarn.identity()) is first
    other = METHODS.parse({"name": "yarn", "beta_fast": 16}, "test")
    assert METHODS.from_identity(other.identity()) == other != first


def test_a_version_raised_since_is_met_by_all_that_was_made_before(monkeypatch):
    identity = METHODS.parse({"name": "pi"}, "test").identity()
    METHODS.from_identity(identity)
    version = identity["version"]
    monkeypatch.setattr(METHODS.load("pi"), "plugin_version", version + 1)
    with pytest.raises(SpecError, match=f"the installed version {version + 1}"):
        METHODS.from_identity(identity)
    assert METHODS.parse({"name": "pi"}, "test").identity()["version"] == version + 1


def test_a_plugin_imported_anew_is_the_new_one(plugin):
    plugin("anew", WHOLE)
    before = METHODS.from_identity({"name": "anew", "version": 3})
    sys.modules.pop("lce_core.methods.anew")
    importlib.invalidate_caches()
    after = METHODS.from_identity({"name": "anew", "version": 3})
    assert type(after) is METHODS.load("anew")
    assert type(after) is not type(before)
