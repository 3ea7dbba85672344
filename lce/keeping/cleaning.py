"""`lce gc`: list and remove the artifacts of a store that no plan and no lock file needs."""

import math
from collections import Counter
from pathlib import Path

from flows.terminal import say
from lce_core import formats
from lce_core.errors import SpecError
from lce_core.store.artifacts import Store
from lce_core.store.garbage import collect_garbage, find_garbage
from lce_core.study.lock import roots_of

GIGABYTE = 10**9


def clean(home: Path, *, dry_run: bool, locks: list[Path], prompt_gigabytes: float) -> None:
    """Remove and print the artifacts that no plan and no lock file needs."""
    if not (home / "artifacts").is_dir():
        raise SpecError(
            f"LCE_HOME {home}",
            "a folder without the subfolder artifacts/",
            "the folder of a store",
            "set LCE_HOME to the folder in which a study ran",
        )
    if not math.isfinite(prompt_gigabytes * GIGABYTE):
        raise SpecError(
            "--prompt-gb",
            f"{prompt_gigabytes}",
            "a number of gigabytes below 1e+299",
            "write a number, such as 2",
        )
    store, most = Store(home), int(prompt_gigabytes * GIGABYTE)
    if dry_run:
        garbage = find_garbage(store, roots_of(store, locks), most)
    else:
        garbage = collect_garbage(store, lambda: roots_of(store, locks), most)
    for one in garbage:
        place = one.path.relative_to(home)
        say(f"{one.what:<8} {formats.size(one.bytes):>9}  {place}  ({one.why})")
    counts = Counter(one.what for one in garbage)
    what = ", ".join(f"{number:,} {name}" for name, number in sorted(counts.items()))
    freed = formats.size(sum(one.bytes for one in garbage))
    say(f"{'would free' if dry_run else 'freed'} {freed}: {what or 'nothing to remove'}")
