"""One pinned revision of a hub repository as a local folder, or quickly the reason why not.

Only what is safe and needed is fetched: JSON, tokenizer files and safetensors; never pickled
weights or code. A complete copy in the local hub cache is used without asking the network. If the
hub must be asked, one request with a limit of seconds decides whether it answers at all, because
the download client itself retries for almost half a minute.
"""

from __future__ import annotations

from pathlib import Path
from typing import cast

from lce_core.errors import UnavailableError

TIMEOUT_SECONDS = 5.0
TOKENIZER_FILES = ("*.json", "tokenizer.model", "merges.txt")
WEIGHT_FILES = ("*.safetensors",)


def fetch(name: str, repo: str, revision: str, *, weights: bool) -> Path:
    """Folder with configuration, tokenizer and, on demand, weights of `repo` at `revision`.

    Args:
      name: registered name of the base model, for the message.
      repo: hub repository.
      revision: 40-hex commit; a branch could change under a study.
      weights: also fetch the safetensors files.

    Raises:
      UnavailableError: the files are neither cached nor reachable; says how to get them.
    """
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    patterns = [*TOKENIZER_FILES, *(WEIGHT_FILES if weights else ())]
    try:
        cached = snapshot_download(
            repo, revision=revision, allow_patterns=patterns, local_files_only=True
        )
    except LocalEntryNotFoundError:
        pass
    else:
        if not weights or any(Path(cached).glob("*.safetensors")):
            return Path(cached)
    # The HTTP library changes between hub versions; its error is a base of the hub's own.
    http_errors = cast("tuple[type[Exception], ...]", (OSError, *HfHubHTTPError.__bases__))
    try:
        HfApi().model_info(repo, revision=revision, timeout=TIMEOUT_SECONDS)
        return Path(snapshot_download(repo, revision=revision, allow_patterns=patterns))
    except http_errors as error:
        reason = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        raise UnavailableError(_remedy(name, f"{repo}@{revision}", reason)) from error


def _remedy(name: str, what: str, reason: str) -> str:
    return (
        f"{name}: {what} is neither in the hub cache nor reachable ({reason.rstrip(': ')}). Name a"
        f" folder that holds it with `--model-folder {name}=FOLDER` or `execution: model_folders`;"
        " or connect to the hub and, where the repository is gated, accept its licence there and"
        " set HF_TOKEN"
    )
