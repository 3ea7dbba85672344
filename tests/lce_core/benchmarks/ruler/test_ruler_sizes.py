"""Sizes of RULER's prompts: they fit, grow, and end; what they follow from.

Properties over drawn lengths with two real tokenizers; unit counts against measured ones.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lce_core.benchmarks.ruler import TASKS, new_tokens
from lce_core.benchmarks.ruler._haystack import Haystack
from lce_core.benchmarks.ruler._niah import NEEDLE, NIAH, Niah
from lce_core.contracts.toy_text import STORY
from lce_core.errors import UnavailableError
from tests.support.ruler.prompts import BPE, BYTES, prompts_of, request_for, stand_in_data


@dataclass(frozen=True)
class Rationed:
    """A tokenizer with one token for so many characters."""

    characters: float

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        return [0] * int(len(text) / self.characters)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return stand_in_data(tmp_path_factory.mktemp("data"))


# Sizes


@pytest.mark.parametrize(
    ("task", "length", "first", "step"),
    [
        ("niah_single_2", 2048, 500, 500),
        ("niah_single_1", 2048, 5, 5),
        ("niah_single_1", 4096, 25, 25),
        ("niah_multikey_3", 4095, 5, 5),
        ("niah_multikey_3", 65536, 25, 25),
    ],
)
def test_v1_counts_words_by_500_and_lines_by_25_or_5(
    task: str, length: int, first: int, step: int
) -> None:
    haystack = Haystack(STORY, "story") if task == "niah_single_2" else None
    units = Niah(NIAH[task], length, v1=True, haystack=haystack).units
    assert (units.first, units.step) == (first, step)


def test_v1_leaves_half_of_multikey_3_empty_at_4096_where_the_search_fills_it(
    folders: dict[str, Path],
) -> None:
    # 80.3 tokens a line, as measured with Llama's tokenizer: 25 needles by v1, 46 by search.
    line = len(NEEDLE.format(values="uuids", key="k" * 36, value="v" * 36)) + 1
    request = request_for("niah_multikey_3", 4096, folders, tokenizer=Rationed(line / 80.3))
    lengths = {
        sizes: [len(prompt.ids) + 128 for prompt in prompts_of(request, sizes=sizes)]
        for sizes in ("v1", "search")
    }
    assert all(2300 < length < 2550 for length in lengths["v1"])
    assert all(4000 < length <= 4096 for length in lengths["search"])


def test_only_the_first_release_of_fwe_may_exceed_the_length_by_its_answer(
    folders: dict[str, Path],
) -> None:
    request = request_for("fwe", 2000, folders)
    free = {
        profile: [2000 - len(p.ids) - 50 for p in prompts_of(request, profile=profile)]
        for profile in ("clean", "faithful")
    }
    assert all(0 <= tokens < 60 for tokens in free["clean"])
    assert all(tokens >= -50 for tokens in free["faithful"])


@settings(max_examples=12)
@given(
    task=st.sampled_from(TASKS),
    length=st.integers(200, 2600),
    profile=st.sampled_from(["clean", "faithful"]),
    tokenizer=st.sampled_from([BYTES, BPE]),
)
def test_prompts_fit_their_length_or_name_the_minimum(
    folders: dict[str, Path], task: str, length: int, profile: str, tokenizer: Any
) -> None:
    request = request_for(task, length, folders, tokenizer=tokenizer)
    reason, prompts = "", ()
    try:
        prompts = prompts_of(request, profile=profile)
    except UnavailableError as error:
        reason = str(error)
    if reason:
        assert task in reason
        minimum = int(reason.split("at least ")[1].split()[0])
        assert length < minimum < 14_000
        return
    reserved = 0 if (task, profile) == ("fwe", "faithful") else new_tokens(task)
    uncounted = 4 if (task, profile) == ("vt", "faithful") else 0  # between example and task
    assert all(len(prompt.ids) + reserved <= length + uncounted for prompt in prompts)
    # RULER's repetitions and units change at 4096; small collections run out of documents.
    if 2 * length < 4096 and not task.startswith("qa"):
        again = prompts_of(replace(request, eval_length=2 * length), profile=profile)
        assert min(len(p.ids) for p in again) > max(len(p.ids) for p in prompts)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("profile", ["clean", "faithful"])
def test_a_length_that_holds_no_prompt_is_unavailable_at_once(
    task: str, profile: str, folders: dict[str, Path]
) -> None:
    for length in (1, 129):
        with pytest.raises(UnavailableError, match=rf"{length} tokens, .* {task} .* at least"):
            prompts_of(request_for(task, length, folders), profile=profile)


# Identity of prompts
