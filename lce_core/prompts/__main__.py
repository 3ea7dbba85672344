"""`python -m lce_core.prompts`: print one sample of a cell with its prompts as JSON.

The dashboard starts this command. After an error, the exit code is 2 and the message is on standard
error.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from lce_core.errors import LceError
from lce_core.prompts.reading import readable_sample, to_json
from lce_core.prompts.rebuilding import rebuilt_cell
from lce_core.store.artifacts import Store


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m lce_core.prompts")
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--cell", required=True)
    parser.add_argument("--sample", type=int, required=True)
    arguments = parser.parse_args()
    try:
        found = readable_sample(
            rebuilt_cell(Store(arguments.home), arguments.cell), arguments.sample
        )
    except LceError as error:
        sys.stderr.write(f"lce: {error}\n")
        return 2
    sys.stdout.write(json.dumps(to_json(found)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
