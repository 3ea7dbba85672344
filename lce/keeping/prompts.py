"""`lce prompt`: print the prompt that the model received for one sample of a finished cell."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

from lce_core.execution import Execution
from lce_core.prompts import ReadableSample, origin, readable_sample, rebuilt_cell, size, to_json
from lce_core.store.artifacts import Store


def show_sample(execution: Execution, cell: str, sample: int, *, as_json: bool) -> None:
    """Print a sample's prompt to stdout; print the model's answer, score and sizes to stderr.

    The prompt is exactly the text that the model received. Only a terminal shows control characters
    in escaped form.

    Args:
      as_json: print everything as one JSON object to stdout instead.
    """
    folders = execution.model_folders, execution.data_folders
    found = readable_sample(rebuilt_cell(Store(execution.home), cell, *folders), sample)
    if as_json:
        sys.stdout.write(json.dumps(to_json(found), indent=1) + "\n")
        return
    sys.stderr.write("".join(f"{line}\n" for line in _about(found)))
    for number, prompt in enumerate(found.prompts, start=1):
        if len(found.prompts) > 1:
            sys.stderr.write(f"query {number} of {len(found.prompts)}:\n")
        sys.stderr.write(f"{size(prompt)}\n")
        sys.stderr.flush()
        sys.stdout.write(f"{prompt.text}\n")
        sys.stdout.flush()


def _about(found: ReadableSample) -> Iterator[str]:
    row = found.sample
    yield f"{found.cell}, sample {row['sample']} of 0 to {found.num_samples - 1}"
    yield f"answer {row['prediction']!r}, reference {row['reference']!r}, score {row['score']:g}"
    yield from origin(found)
