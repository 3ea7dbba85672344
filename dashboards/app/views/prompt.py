"""Show the prompts of one sample: short ones whole, long ones as excerpts.

A subprocess (`python -m lce_core.prompts`) rebuilds them, so that the dashboard itself loads
neither tokenizers nor benchmarks. Only a viewer who opens a sample waits for them to load.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import streamlit as st

from dashboards.app.excerpts import MOST_PLACES, WHOLE, as_html

MOST_SECONDS = 600.0
_POLL_SECONDS = 0.25
_LAST = "last prompt"
_BOX = (
    "white-space: pre-wrap; overflow-wrap: anywhere; max-height: 30rem; overflow-y: auto;"
    " font-size: 0.85rem; margin: 0"
)


@dataclass(frozen=True)
class Prompts:
    """A sample's rebuilt prompts, or the reason why they cannot be shown."""

    found: dict[str, Any] | None
    """The JSON object that `lce_core.prompts` prints; None if the prompts cannot be shown."""
    reason: str = ""
    """Why the prompts cannot be shown; "" if they can."""


def show(home: Path, cell: str, sample: int) -> None:
    """Show a sample's prompts and what they were built from, or why they cannot be built."""
    prompts = _prompts(home, cell, sample)
    if prompts.found is None:
        st.warning("This prompt cannot be shown.")
        st.code(prompts.reason, language=None, wrap_lines=True)
        return
    found = prompts.found
    st.caption(". ".join(found["origin"]) + ".")
    for number, prompt in enumerate(found["prompts"]):
        queries = len(found["prompts"])
        st.text((f"Query {number + 1} of {queries}: " if queries > 1 else "") + _size(prompt))
        text = as_html(prompt["text"], prompt["places"])
        st.html(f'<pre role="region" tabindex="0" aria-label="Prompt" style="{_BOX}">{text}</pre>')
        row = st.container(horizontal=True)
        name, key = f"{cell}-{sample}-{number}", f"{cell} {sample} {number}"
        row.download_button(
            "Whole prompt", prompt["text"], f"{name}.txt", "text/plain", key=f"text {key}"
        )
        row.download_button(
            "Token ids", json.dumps(prompt["ids"]), f"{name}.json", key=f"ids {key}"
        )


def _prompts(home: Path, cell: str, sample: int) -> Prompts:
    """Return the sample's prompts, from the session if they were the last ones to be built.

    Streamlit reruns the page at every click, so without this each click would rebuild them.
    """
    key = (str(home), cell, sample)
    if _LAST not in st.session_state or st.session_state[_LAST][0] != key:
        place = st.empty()
        # If the viewer leaves the page, the callback raises, which ends the subprocess.
        prompts = build_prompts(
            home,
            cell,
            sample,
            lambda seconds: place.text(f"Building the prompts of this cell: {seconds:.0f} s"),
        )
        place.empty()
        st.session_state[_LAST] = (key, prompts)
    kept: Prompts = st.session_state[_LAST][1]
    return kept


def _size(prompt: dict[str, Any]) -> str:
    is_cut = len(prompt["text"]) > WHOLE and len(prompt["places"]) > MOST_PLACES
    size: str = prompt["size"]
    return size + (f"; shown around the first {MOST_PLACES} of them" if is_cut else "")


def build_prompts(
    home: Path, cell: str, sample: int, waiting: Callable[[float], object]
) -> Prompts:
    """Run `lce_core.prompts` to rebuild a sample's prompts, for at most `MOST_SECONDS`.

    `waiting` is called several times a second with the elapsed seconds. If it raises an exception,
    the subprocess is killed.
    """
    command = [sys.executable, "-m", "lce_core.prompts", "--home", str(home)]
    process = subprocess.Popen(
        [*command, "--cell", cell, "--sample", str(sample)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )
    began = time.monotonic()
    with process:
        try:
            while True:
                try:
                    output, complaint = process.communicate(timeout=_POLL_SECONDS)
                    break
                except subprocess.TimeoutExpired:
                    seconds = time.monotonic() - began
                    if seconds > MOST_SECONDS:
                        return Prompts(None, _too_long(cell, sample))
                    waiting(seconds)
        finally:
            process.kill()  # no effect after a normal exit
    if process.returncode:
        failed = f"the process failed with exit code {process.returncode}"
        return Prompts(None, complaint.strip() or failed)
    return Prompts(json.loads(output))


def _too_long(cell: str, sample: int) -> str:
    return (
        f"Building the prompts of this cell takes more than {MOST_SECONDS:.0f} s."
        f" Run `lce prompt {cell} {sample}`, which has no time limit and caches the prompts."
    )
