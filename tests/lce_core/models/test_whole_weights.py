"""Damaged weights are found from headers and index alone, before anything is loaded.

The identity of a folder of weights is every byte of every model file, and no other file.
"""

import hashlib
import json
import os
import stat
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import yaml
from safetensors.numpy import save

from lce_core.errors import DataError
from lce_core.models import read_config_json, require_model, require_whole, weights_digest
from lce_core.store.file_facts import FileFacts
from lce_core.study.plan import compile_study
from lce_core.study.study_file import StudySpec, parse_study
from tests.support.file_events import opened
from tests.support.toy_study import TOY
from tests.support.weights import smallest_weights

SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
INDEX = "model.safetensors.index.json"


@pytest.fixture
def folder(tmp_path) -> Path:
    for number, name in enumerate(SHARDS):
        (tmp_path / name).write_bytes(tensor(f"layer{number}"))
    names = {f"layer{number}": name for number, name in enumerate(SHARDS)}
    (tmp_path / INDEX).write_text(json.dumps({"weight_map": names}), encoding="utf-8")
    for name in ("config.json", "tokenizer.json"):
        (tmp_path / name).write_text("{}", encoding="utf-8")
    return tmp_path


def tensor(name: str) -> bytes:
    return save({name: np.arange(1000.0)})


IN_A_BASE_MODEL: dict[str, tuple[str, Callable[[bytes], bytes | None]]] = {
    "cut": (SHARDS[1], lambda whole: whole[:-1]),
    "longer": (SHARDS[0], lambda whole: whole + b"0"),
    "lost": (SHARDS[1], lambda whole: None),
    "empty": (SHARDS[0], lambda whole: b""),
    "zeros": (SHARDS[0], lambda whole: bytes(5000)),
    "page": (SHARDS[0], lambda whole: b"<!doctype html><title>Not found</title>"),
    "header": (SHARDS[0], lambda whole: (2).to_bytes(8, "little") + b"[]"),
    "index": (INDEX, lambda whole: b'{"weight_map": 1}'),
}
IN_A_MODEL_OF_ONES_OWN = {
    **{name: IN_A_BASE_MODEL[name] for name in ("cut", "index")},
    "lost tensor": (SHARDS[1], lambda whole: tensor("other")),
    "lost index": (INDEX, lambda whole: None),
}
"""By kind of damage: the damaged file and its content after the damage; None if it is gone."""


def damage(file: Path, change: Callable[[bytes], bytes | None]) -> None:
    content = change(file.read_bytes())
    file.unlink()
    if content is not None:
        file.write_bytes(content)


def test_whole_weights_are_taken(folder):
    require_whole(folder)
    (folder / "smallest.safetensors").write_bytes(smallest_weights())
    require_whole(folder)


@pytest.fixture(scope="module")
def study() -> StudySpec:
    methods = TOY["methods"][:1]
    return parse_study(yaml.safe_dump({**TOY, "methods": methods}), "toy.yaml")


@pytest.mark.parametrize("kind", IN_A_BASE_MODEL)
def test_a_plan_names_the_damaged_file_of_a_base_model(kind, folder, study):
    compile_study(study, {}, {"toy_llama": folder})
    name, change = IN_A_BASE_MODEL[kind]
    damage(folder / name, change)
    with pytest.raises(DataError, match=r"safetensors.*get it again"):
        compile_study(study, {}, {"toy_llama": folder})


@pytest.mark.parametrize("kind", IN_A_MODEL_OF_ONES_OWN)
def test_a_damaged_model_of_ones_own_is_refused(kind, folder):
    require_model(folder)
    name, change = IN_A_MODEL_OF_ONES_OWN[kind]
    damage(folder / name, change)
    with pytest.raises(DataError, match=r"safetensors.*(get it|copy or download the model) again"):
        require_model(folder)


def test_each_json_file_of_a_model_of_ones_own_is_read_once(folder):
    with opened(folder) as paths:
        require_model(folder)
    assert sorted(paths) == sorted(map(str, folder.glob("*.json")))


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "generation_config.json"])
def test_a_torn_json_file_is_named(folder, name):
    (folder / name).write_text('{"a": ', encoding="utf-8")
    with pytest.raises(DataError, match=f"{name}: got a damaged file"):
        require_model(folder)


def test_an_index_whose_link_leads_nowhere_is_named(folder):
    (folder / INDEX).unlink(missing_ok=True)
    (folder / INDEX).symlink_to("gone")
    with pytest.raises(DataError, match=f"{INDEX}: got a damaged file"):
        require_model(folder)


def test_a_model_of_ones_own_needs_a_tokenizer(folder):
    (folder / "tokenizer.json").unlink()
    with pytest.raises(DataError, match="no tokenizer; expected one of the files"):
        require_model(folder)


ODD: dict[str, Callable[[Path], None]] = {
    "a FIFO": os.mkfifo,
    "a socket": lambda path: os.mknod(path, stat.S_IFSOCK | 0o600),
    "a device": lambda path: path.symlink_to("/dev/zero"),
}


@pytest.mark.timeout(600)  # opening them blocks, or reading them never ends
@pytest.mark.parametrize("kind", ODD)
@pytest.mark.parametrize("name", [SHARDS[0], INDEX, "config.json", "tokenizer.json"])
def test_what_is_no_file_is_refused_and_not_opened(kind, name, folder):
    (folder / name).unlink()
    ODD[kind](folder / name)
    for read in (require_model, require_whole, weights_digest, read_config_json):
        with pytest.raises(DataError, match=f"{name}: got a device, pipe or socket"):
            read(folder)


MAPS = (["a"], {"a": 3}, {"a": 3, "b": "c"}, {"a": ["b"]})
INDICES = ("{", "[1]", "{}", *(json.dumps({"weight_map": one}) for one in MAPS))


@pytest.mark.timeout(600)
def test_an_index_that_names_a_device_is_refused(folder):
    (folder / INDEX).write_text('{"weight_map": {"layer0": "/dev/zero"}}', encoding="utf-8")
    with pytest.raises(DataError, match="/dev/zero: got a device, pipe or socket"):
        require_whole(folder)


@pytest.mark.parametrize("content", INDICES)
def test_an_index_that_names_no_files_is_refused(content, folder):
    (folder / INDEX).write_text(content, encoding="utf-8")
    for read in (require_model, require_whole):
        with pytest.raises(DataError, match=f"{INDEX}: got no readable index"):
            read(folder)


def test_a_file_name_that_is_not_utf8_is_refused(folder):
    (folder / os.fsdecode(b"a\xff.json")).write_text("{}", encoding="utf-8")
    for read in (require_model, weights_digest):
        with pytest.raises(DataError, match="not UTF-8") as refused:
            read(folder)
        str(refused.value).encode()


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", INDEX])
def test_json_that_is_nested_too_deeply_is_refused(folder, name):
    (folder / name).write_text("[" * 100_000, encoding="utf-8")
    with pytest.raises(DataError, match=f"{name}: .*nested too deeply"):
        require_model(folder)


@pytest.fixture(scope="module")
def large_folder(tmp_path_factory) -> Path:
    """Weights of 4 MiB, more than twice what was once read of a file."""
    large_folder = tmp_path_factory.mktemp("weights")
    (large_folder / "config.json").write_text("{}")
    (large_folder / "chat_template.jinja").write_text("{{ messages }}")
    (large_folder / "model.safetensors").write_bytes(bytes(4 << 20))
    (large_folder / "README.md").write_text("no part of the model")
    return large_folder


def by_hand(large_folder: Path) -> str:
    names = ("chat_template.jinja", "config.json", "model.safetensors")
    lines = [f"{hashlib.sha256((large_folder / n).read_bytes()).hexdigest()} {n}\n" for n in names]
    return hashlib.sha256("".join(["weights 2\n", *lines]).encode()).hexdigest()


def test_the_digest_is_of_names_and_whole_contents(large_folder):
    assert weights_digest(large_folder) == by_hand(large_folder)
    (large_folder / "README.md").write_text("other words")
    assert weights_digest(large_folder) == by_hand(large_folder)


def test_weights_are_read_once_while_they_stay(large_folder, tmp_path, monkeypatch):
    # The files are seconds old: let them count as old enough to be remembered.
    monkeypatch.setattr("lce_core.store.file_facts.TICK_SECONDS", -1e6)
    with opened(large_folder) as first, FileFacts(tmp_path).in_use():
        digest = weights_digest(large_folder)
    names = [Path(path).name for path in first]
    assert sorted(names) == ["chat_template.jinja", "config.json", "model.safetensors"]
    with opened(large_folder) as second, FileFacts(tmp_path).in_use():
        assert weights_digest(large_folder) == digest
    assert second == []
