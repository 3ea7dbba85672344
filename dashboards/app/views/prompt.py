"""Show the prompts of one sample: short ones whole, long ones as excerpts.

An excerpt has the text's start, the marked spans and the end. The text itself is escaped. The HTML
contains only the elements `mark`, around the marked spans, and `i`, for omitted parts.

A subprocess (`python -m lce_core.prompts`) rebuilds them, so that the dashboard itself loads
neither tokenizers nor benchmarks. Only a viewer who opens a sample waits for them to load.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any

import streamlit as st

WHOLE = 6000
BEGINNING, END, AROUND = 1500, 1200, 500
MOST_PLACES = 8
"""A shortened text always shows this many marked spans; it may omit later ones."""
_CONTROL_SYMBOLS = {code: 0x2400 + code for code in range(32) if chr(code) not in "\t\n"}

Span = tuple[int, int]

MOST_SECONDS = 600.0
_POLL_SECONDS = 0.25
_LAST = "last prompt"
_BOX = (
    "white-space: pre-wrap; overflow-wrap: anywhere; max-height: 30rem; overflow-y: auto;"
    " font-size: 0.85rem; margin: 0"
)


def show(home: Path, cell: str, sample: int) -> None:
    found = _prompts(home, cell, sample)
    if isinstance(found, str):
        st.warning("This prompt cannot be shown.")
        st.code(found, language=None, wrap_lines=True)
        return
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


def _prompts(home: Path, cell: str, sample: int) -> dict[str, Any] | str:
    """Return the sample's prompts, and keep them: Streamlit reruns the page at each click."""
    key = (str(home), cell, sample)
    if _LAST not in st.session_state or st.session_state[_LAST][0] != key:
        place = st.empty()
        # If the viewer leaves the page, the callback raises, which ends the subprocess.
        text = "Building the prompts of this cell: {:.0f} s"
        found = build_prompts(home, cell, sample, lambda took: place.text(text.format(took)))
        place.empty()
        st.session_state[_LAST] = (key, found)
    kept: dict[str, Any] | str = st.session_state[_LAST][1]
    return kept


def _size(prompt: dict[str, Any]) -> str:
    is_cut = len(prompt["text"]) > WHOLE and len(prompt["places"]) > MOST_PLACES
    size: str = prompt["size"]
    return size + (f"; shown around the first {MOST_PLACES} of them" if is_cut else "")


def build_prompts(
    home: Path, cell: str, sample: int, waiting: Callable[[float], object]
) -> dict[str, Any] | str:
    """Return the JSON object that `lce_core.prompts` prints, or the reason why there is none.

    While it runs, call `waiting` with the elapsed seconds; an exception of it kills the subprocess.
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
                        return (
                            "Building the prompts of this cell takes more than"
                            f" {MOST_SECONDS:.0f} s. Run `lce prompt {cell} {sample}`, which has no"
                            " time limit and caches the prompts."
                        )
                    waiting(seconds)
        finally:
            process.kill()  # no effect after a normal exit
    if process.returncode:
        failed = f"the process failed with exit code {process.returncode}"
        return complaint.strip() or failed
    found: dict[str, Any] = json.loads(output)
    return found


def shown(length: int, places: Sequence[Span]) -> list[Span]:
    """Return the disjoint spans of a text that an excerpt shows: a short text whole.

    Of a long text it shows the start, the end and the surroundings of the marked spans.
    """
    if length <= WHOLE:
        return [(0, length)]
    wanted = [(0, BEGINNING), (length - END, length)]
    for first, last in places[:MOST_PLACES]:
        wanted.append((max(0, first - AROUND), min(length, last + AROUND)))
    found: list[Span] = []
    for first, last in sorted(wanted):
        if found and first <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
    return found


def as_html(text: str, places: Sequence[Span]) -> str:
    parts, at = [], 0
    for first, last in shown(len(text), places):
        if first > at:
            parts.append(f"\n<i>[{first - at:,} characters are not shown here]</i>\n")
        parts += _marked(text, first, last, places)
        at = last
    return "".join(parts)


def _marked(text: str, first: int, last: int, places: Sequence[Span]) -> Iterator[str]:
    at = first
    for begin, end in places:
        if first <= begin and end <= last:
            yield _visible(text[at:begin])
            yield f"<mark>{_visible(text[begin:end])}</mark>"
            at = end
    yield _visible(text[at:last])


def _visible(text: str) -> str:
    return escape(text.translate(_CONTROL_SYMBOLS))
