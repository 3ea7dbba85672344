"""Read config.json of a model's folder, check that its weights are complete, and digest them."""

import contextlib
import hashlib
import json
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

from lce_core.errors import DataError, UnavailableError
from lce_core.store.file_facts import sha256_of
from lce_core.store.odd_files import odd_kind, read_file, writable

VERSION = 2
"""Version of the digest's rule. Version 1 read only the start and end of large files."""
_SUFFIXES = (".json", ".safetensors", ".model", ".txt", ".jinja")
_WEIGHTS = "model.safetensors"
_INDEX = "model.safetensors.index.json"
_DTYPES = (None, "float16", "bfloat16", "float32", "float64")
_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt")


def damaged(file: Path | str, got: str, expected: str) -> DataError:
    return DataError(file, got, expected, "copy or download the model again")


def read_config_json(folder: Path) -> dict[str, Any]:
    require_files(folder)
    file = folder / "config.json"
    try:
        config = _json(file)
        if not isinstance(config, dict):
            raise ValueError(f"a JSON value of type {type(config).__name__}")
    except (OSError, ValueError) as error:
        got = f"no readable configuration ({type(error).__name__}: {error})"
        expected = "a JSON object, the config.json of a transformers model"
        raise damaged(file, got, expected) from error
    _refuse_code(config, file)
    return config


def require_files(folder: Path) -> None:
    """Check that model files are regular files: a FIFO or device would block transformers."""
    with contextlib.suppress(OSError):  # whoever reads an unreadable folder reports it
        for file in sorted(folder.iterdir()):
            if file.suffix in _SUFFIXES:
                _require_file(file)


def _require_file(file: Path) -> None:
    if file.name != (name := writable(file.name)):
        raise DataError(
            file.with_name(name),
            "a name with bytes that are not UTF-8",
            "file names in UTF-8",
            "rename the file",
        )
    try:
        odd = odd_kind(file)
    except OSError:
        return
    if odd:
        raise damaged(file, odd, "a file")


def _refuse_code(config: dict[str, Any], file: Path) -> None:
    # transformers would look up these names in torch, or download them as code from a hub.
    for key in ("dtype", "torch_dtype"):
        if (given := config.get(key)) not in _DTYPES:
            kinds = ", ".join(filter(None, _DTYPES))
            raise DataError(
                f"{file}: {key}", repr(given), f"one of {kinds}", "correct or remove the key"
            )
    for key in ("attn_implementation", "_attn_implementation", "_attn_implementation_internal"):
        given = config.get(key)
        if given is not None and not re.fullmatch(r"\w+", str(given)):
            raise DataError(
                f"{file}: {key}",
                repr(given),
                "attention of transformers itself, because lce runs no code from a hub",
                "remove the key",
            )


def _json(file: Path) -> Any:
    try:
        return json.loads(read_file(file))
    except RecursionError:
        raise ValueError("JSON nested too deeply") from None


def weights_digest(folder: Path) -> str:
    """Return the sha256 over names and contents of the model files in `folder`."""
    digest = hashlib.sha256(f"weights {VERSION}\n".encode())
    require_files(folder)
    try:
        files = sorted(file for file in folder.iterdir() if file.suffix in _SUFFIXES)
        for file in files:
            digest.update(f"{sha256_of(file)} {file.name}\n".encode())
    except OSError as error:
        raise UnavailableError(
            folder,
            f"{error.filename or 'a file'}, which cannot be read ({error.strerror})",
            "readable model files",
            "change the permissions of the files",
        ) from error
    if not files:
        raise UnavailableError(
            folder,
            "no model file",
            "a folder with a model's config.json, weights and tokenizer",
            "name the folder that contains these files",
        )
    return digest.hexdigest()


def require_whole(folder: Path) -> None:
    """Raise DataError unless safetensors files have the sizes that their headers state."""
    require_files(folder)
    for file in sorted(folder.glob("*.safetensors")):
        _tensors(file)
    for shard in _shards(folder):
        _tensors(shard)


def _tensors(file: Path) -> set[str]:
    """Return the names of a complete safetensors file's tensors."""
    from safetensors import SafetensorError, safe_open

    _require_file(file)
    try:
        with safe_open(file, "np") as opened:
            return set(opened.keys())
    except (OSError, SafetensorError) as error:
        raise _incomplete(file, error, "safetensors") from error


def _incomplete(file: Path, error: Exception, kind: str) -> DataError:
    return DataError(file, f"a damaged file ({error})", f"a complete {kind} file", "get it again")


def require_model(folder: Path) -> None:
    """Raise DataError unless a folder has all files of a model, and shards all of their tensors."""
    require_files(folder)
    for file in sorted(folder.glob("*.json")):
        if file == folder / _INDEX and file.is_file():
            continue  # read below
        try:
            _json(file)
        except (OSError, ValueError) as error:
            raise _incomplete(file, error, "JSON") from error
    if not any((folder / name).is_file() for name in _TOKENIZERS):
        raise DataError(
            folder,
            "no tokenizer",
            f"one of the files {', '.join(_TOKENIZERS)}",
            "copy the model's tokenizer files there",
        )
    held = {file: _tensors(file) for file in sorted(folder.glob("*.safetensors"))}
    if not (folder / _WEIGHTS in held or (folder / _INDEX).is_file()):
        raise DataError(
            folder,
            f"neither {_WEIGHTS} nor {_INDEX}",
            "weights as one safetensors file, or as shards with their index",
            "copy or download the model again; convert other formats to safetensors",
        )
    for shard, names in _shards(folder).items():
        if lost := sorted(names - (held[shard] if shard in held else _tensors(shard))):
            raise DataError(
                shard,
                f"no tensor {lost[0]!r} ({len(lost)} missing)",
                f"the tensors that {_INDEX} names for this safetensors file",
                "get it again",
            )


def _shards(folder: Path) -> dict[Path, set[str]]:
    """Return the tensors by file that the index names, sorted by file; {} without an index."""
    index, found = folder / _INDEX, defaultdict[Path, set[str]](set)
    if not index.is_file():
        return {}
    try:
        for tensor, shard in _json(index)["weight_map"].items():
            found[folder / shard].add(tensor)
        return dict(sorted(found.items()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(
            index,
            f"no readable index ({type(error).__name__}: {error})",
            "a JSON object whose `weight_map` names the file of each tensor",
            "get it again",
        ) from error
