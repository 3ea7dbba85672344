"""Damaged weights are found from headers and index alone, before anything is loaded."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import yaml
from safetensors.numpy import save_file

from lce_core.errors import DataError
from lce_core.models import require_model, require_whole
from lce_core.study.plan import compile_study
from lce_core.study.study_file import parse_study
from tests.lce_core.study.test_plan import TOY
from tests.support.weights import smallest_weights

SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
INDEX = "model.safetensors.index.json"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number, name in enumerate(SHARDS):
        save_file({f"layer{number}": np.arange(1000.0)}, tmp_path / name)
    names = {f"layer{number}": name for number, name in enumerate(SHARDS)}
    (tmp_path / INDEX).write_text(json.dumps({"weight_map": names}), encoding="utf-8")
    for name in ("config.json", "tokenizer.json"):
        (tmp_path / name).write_text("{}", encoding="utf-8")
    return tmp_path


def cut(folder: Path) -> None:
    content = (folder / SHARDS[1]).read_bytes()
    (folder / SHARDS[1]).write_bytes(content[:-1])


def lengthen(folder: Path) -> None:
    with (folder / SHARDS[0]).open("ab") as file:
        file.write(b"0")


def lose_a_shard(folder: Path) -> None:
    (folder / SHARDS[1]).unlink()


def empty(folder: Path) -> None:
    (folder / SHARDS[0]).write_bytes(b"")


def fill_with_zeros(folder: Path) -> None:
    (folder / SHARDS[0]).write_bytes(bytes(5000))


def replace_by_a_page(folder: Path) -> None:
    (folder / SHARDS[0]).write_text("<!doctype html><title>Not found</title>", encoding="utf-8")


def break_the_header(folder: Path) -> None:
    (folder / SHARDS[0]).write_bytes((2).to_bytes(8, "little") + b"[]")


def break_the_index(folder: Path) -> None:
    (folder / INDEX).write_text('{"weight_map": 1}', encoding="utf-8")


def lose_a_tensor(folder: Path) -> None:
    save_file({"other": np.arange(1000.0)}, folder / SHARDS[1])


def lose_the_index(folder: Path) -> None:
    (folder / INDEX).unlink()


DAMAGES = (
    cut,
    lengthen,
    lose_a_shard,
    empty,
    fill_with_zeros,
    replace_by_a_page,
    break_the_header,
    break_the_index,
)


def test_whole_weights_are_taken(folder: Path) -> None:
    require_whole(folder)
    (folder / "smallest.safetensors").write_bytes(smallest_weights())
    require_whole(folder)


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_a_plan_names_the_damaged_file_of_a_base_model(
    folder: Path, damage: Callable[[Path], None]
) -> None:
    study = parse_study(yaml.safe_dump(TOY), "toy.yaml")
    compile_study(study, {}, {"toy_llama": folder})
    damage(folder)
    with pytest.raises(DataError, match=r"safetensors.*copy or download it again"):
        compile_study(study, {}, {"toy_llama": folder})


@pytest.mark.parametrize("damage", [cut, break_the_index, lose_a_tensor, lose_the_index])
def test_a_damaged_model_of_ones_own_is_refused(
    folder: Path, damage: Callable[[Path], None]
) -> None:
    require_model(folder)
    damage(folder)
    with pytest.raises(DataError, match=r"safetensors.*copy or download (it|the model) again"):
        require_model(folder)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "generation_config.json"])
@pytest.mark.parametrize("content", ["", '{"a": '])
def test_a_torn_json_file_is_named(folder: Path, name: str, content: str) -> None:
    (folder / name).write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match=f"{name}: got a damaged file"):
        require_model(folder)


def test_a_model_of_ones_own_needs_a_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    with pytest.raises(DataError, match="no tokenizer; expected one of the files"):
        require_model(folder)
