"""Show the prompts of one sample: short ones whole, long ones as excerpts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import streamlit as st

from dashboards.app.excerpts import MOST_PLACES, WHOLE, as_html
from dashboards.app.prompts import Prompts, build_prompts

_LAST = "last prompt"
_BOX = (
    "white-space: pre-wrap; overflow-wrap: anywhere; max-height: 30rem; overflow-y: auto;"
    " font-size: 0.85rem; margin: 0"
)


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
