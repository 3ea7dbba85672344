"""State of a planned cell (done, failed, missing or unavailable), with the reason."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from catalog.holdings import Holdings
from lce_core.study.states import State


def cell_status(
    cell: Mapping[str, Any], holdings: Holdings, kinds: Mapping[str, str]
) -> dict[str, Any]:
    """Return the columns `status`, `reason`, `attempts` and `seconds` of a planned cell.

    `reason` states why the cell is not done and is None if it is done; `seconds` is None unless the
    cell is done.

    Args:
      cell: One entry of the plan's `cells`.
      holdings: The contents of the store.
      kinds: Kinds ("rows", "finetune", ...) of the steps on which the study's cells depend, by
        short fingerprint.
    """
    if cell["unavailable"]:
        return _status("unavailable", cell["unavailable"])
    short = cell["cell"]
    record = holdings.intact(short)
    if record is not None:
        return _status("done", None, record.attempts, record.seconds)
    if failure := holdings.failures.get(short):
        # Some cells prove impossible only when they run.
        if failure["class"] == "unavailable":
            return _status("unavailable", failure["message"], failure["attempts"])
        return _status("failed", _cause(failure), failure["attempts"])
    if trouble := holdings.trouble(short, cell["folder"]):
        return _status("missing", f"damaged: {trouble}; the next run computes it again")
    return _status("missing", _obstacle(cell["blocked_by"], holdings, kinds))


def _obstacle(parents: list[str], holdings: Holdings, kinds: Mapping[str, str]) -> str:
    waiting = [parent for parent in parents if holdings.intact(parent) is None]
    for parent in waiting:
        if failure := holdings.failures.get(parent):
            kind = failure["folder"].split("/")[0]
            return f"{kind} {parent} failed: {_cause(failure)}"
    if not waiting:
        return "not run yet"
    return f"waits for {kinds[waiting[0]]} {waiting[0]}"


def _cause(failure: Mapping[str, Any]) -> str:
    return f"{failure['class']}: {failure['message']}"


def _status(
    status: State, reason: str | None, attempts: int = 0, seconds: float | None = None
) -> dict[str, Any]:
    return {"status": status, "reason": reason, "attempts": attempts, "seconds": seconds}
