"""The shipped toy study as a mapping, for tests that edit it.

It has no `expects`, which would name the methods, benchmarks and lengths that the edits remove.
"""

from typing import Any

import yaml

from flows.settings import STUDIES

TOY: dict[str, Any] = yaml.safe_load((STUDIES / "toy.yaml").read_text(encoding="utf-8"))
del TOY["expects"]
