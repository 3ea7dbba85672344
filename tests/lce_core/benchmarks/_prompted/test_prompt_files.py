"""Files of prompts: read as they were written, or not at all."""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lce_core.benchmarks._prompted.files import read_prompts, write_prompts
from lce_core.benchmarks._prompted.retrieval import Prompt
from tests.support.stored_prompts import WHOLE, same

HOUR = 3600

tokens = st.lists(st.integers(0, 2**32 - 1), max_size=20)
ids = tokens.map(lambda row: np.array(row, dtype=np.int64))
depths = st.none() | st.floats(0, 100)
plain = st.builds(Prompt, ids, st.text(), depths)
full = st.builds(
    Prompt,
    ids,
    st.text(),
    depths,
    references=st.lists(st.text(), max_size=3).map(tuple),
    cluster=st.none() | st.text(),
    context_tokens=st.integers(0, 20),
)


@given(st.lists(plain, max_size=4) | st.lists(full, min_size=1, max_size=4))
def test_prompts_are_read_as_they_were_written_and_equal_ones_are_equal_files(prompts):
    with tempfile.TemporaryDirectory() as folder:
        first, second = Path(folder) / "new" / "a", Path(folder) / "b"
        write_prompts(first, prompts)
        found = read_prompts(first)
        assert found is not None
        assert same(found, prompts)
        write_prompts(second, found)
        assert first.read_bytes() == second.read_bytes()
        assert [file.name for file in first.parent.iterdir()] == ["a"]


WRITER = """
import sys
from pathlib import Path
from lce_core.benchmarks._prompted.files import write_prompts
from tests.support.stored_prompts import WHOLE
prompts = WHOLE[:1] * 200
for _ in range(int(sys.argv[2])):
    write_prompts(Path(sys.argv[1]), prompts)
"""


@given(st.integers(0), st.integers(1, 255), st.sampled_from(["cut", "changed", "longer"]))
def test_damage_is_noticed_and_never_gives_other_prompts(place, change, damage):
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "prompts"
        write_prompts(file, WHOLE)
        content = bytearray(file.read_bytes())
        place %= len(content)
        if damage == "cut":
            del content[place:]
        elif damage == "changed":
            content[place] ^= change
        else:
            content += bytes(change)
        file.write_bytes(content)
        found = read_prompts(file)
        # A blank of the header may have become a tab.
        assert found is None or (damage == "changed" and same(found, WHOLE))


@pytest.mark.slow
def test_readers_see_whole_files_while_processes_write_and_one_is_killed(tmp_path):
    file, expected = tmp_path / "prompts", WHOLE[:1] * 200
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, file, str(times)]) for times in (100, 10**9)
    ]
    while not file.exists():
        assert any(writer.poll() is None for writer in writers)
        time.sleep(0.01)
    while writers[0].poll() is None:
        found = read_prompts(file)
        assert found is not None
        assert same(found, expected)
    writers[1].kill()
    assert [writer.wait() for writer in writers] == [0, -9]
    assert same(read_prompts(file) or (), expected)
    assert {path.name[:9] for path in tmp_path.iterdir()} <= {"prompts", ".writing-"}


def test_what_a_crash_left_is_removed_by_a_later_writer(tmp_path):
    for age in (30, 2 * HOUR):
        left = tmp_path / f".writing-{age}"
        left.touch()
        os.utime(left, (time.time() - age,) * 2)
    write_prompts(tmp_path / "prompts", WHOLE)
    assert {path.name for path in tmp_path.iterdir()} == {"prompts", ".writing-30"}
