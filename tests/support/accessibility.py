"""What axe-core finds on a page of a browser: names, contrast, order, what a keyboard can reach.

https://github.com/dequelabs/axe-core; its script comes in the package axe-playwright-python.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Page

GRAVE = ("serious", "critical")


def faults(page: Page) -> list[str]:
    """The serious and critical faults of a loaded page, a line each: rule, where, what is wrong."""
    if not page.evaluate("typeof axe === 'object'"):
        page.evaluate(_script())
    answer: dict[str, Any] = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    assert len(answer["passes"]) > 10, "axe-core has found little to look at"
    return [
        f"{found['id']} ({found['impact']}): {node['target']}: {node['failureSummary']}"
        for found in answer["violations"]
        if found["impact"] in GRAVE
        for node in found["nodes"]
    ]


@cache
def _script() -> str:
    return (files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")
