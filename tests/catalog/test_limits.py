"""Statements of users against the bounds on memory, temporary files, result and time.

Heavy ones run in a process whose children are measured; the bounds are small so that it is quick.
"""

import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import pytest

from catalog.apart import answer_apart
from catalog.limits import (
    MAX_MEMORY_BYTES,
    MIN_MEMORY_BYTES,
    Limits,
    bytes_of,
    free_memory,
    limits,
)
from catalog.queries import open_catalog, read_blocks, run_query
from lce_core.environment import for_child
from lce_core.errors import SpecError, StoreError

MB = 1 << 20
MEMORY = 320 * MB
HEAVY = (
    "SELECT repeat('x', 200000000), repeat('y', 200000000)",
    "SELECT repeat('x', 1000000) FROM range(5000)",
    "SELECT string_agg(repeat('x', 1000), '') FROM range(1000000)",
    "SELECT list(range) FROM range(100000000)",
    "SELECT map_from_entries(list((range, repeat('x', 1000)))) FROM range(1000000)",
    "SELECT string_split(repeat('x ', 50000000), ' ')",
    "SELECT a.range, b.range FROM range(1000000) a, range(1000000) b",
    "SELECT * FROM range(50000000) ORDER BY hash(range)",
)
MEASURE = """
import json, re, resource, sys
from pathlib import Path
from catalog.apart import answer_apart
from lce_core.errors import SpecError
for sql in json.load(sys.stdin):
    try:
        answer_apart(Path(sys.argv[1]), sql, 60, memory=int(sys.argv[2]))
        said = None
    except SpecError as error:
        said = str(error)
    # Its own ru_maxrss would be that of the process which started it.
    own = re.search(r"VmHWM:\\s*(\\d+)", Path("/proc/self/status").read_text())[1]
    peaks = int(own), resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    print(json.dumps([said, *(peak << 10 for peak in peaks)]), flush=True)
"""


@pytest.fixture(scope="module")
def catalog(tmp_path_factory) -> Path:
    file = tmp_path_factory.mktemp("limits") / "catalog.duckdb"
    with duckdb.connect(str(file)) as connection:
        connection.execute("CREATE VIEW studies AS SELECT 'toy' AS study")
    return file


@pytest.mark.slow
def test_heavy_statements_end_with_one_sentence_and_stay_within_their_memory(catalog):
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(catalog), str(MEMORY)],
        input=json.dumps(HEAVY),
        env=for_child(os.environ),
        capture_output=True,
        text=True,
        check=True,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(lines) == len(HEAVY)
    for sql, (said, own, of_child) in zip(HEAVY, lines, strict=True):
        assert said is not None, sql
        assert "\n" not in said
        assert said.startswith(f"SQL: got {sql} ")
        assert of_child < MEMORY + 64 * MB, sql  # shared libraries do not count as data
        assert own < 128 * MB, sql


def test_an_answer_from_another_process_is_the_one_that_this_process_gives(catalog):
    sql = (
        "SELECT 1 AS a, 1.5::DOUBLE AS a, 'é\\n\\x1b', NULL, TRUE, [1, NULL, 2], [{'k': [1.5]}],"
        " {'b': DATE '2020-01-01'}, MAP {1: 'x'}, TIMESTAMP '2020-01-01 01:02:03.5',"
        " TIME '01:02:03', INTERVAL '3 days 1 second', 1.25::DECIMAL(5, 2), 'ab'::BLOB,"
        " 170141183460469231731687303715884105727, 'inf'::DOUBLE, [1, 2]::INTEGER[2],"
        " '00000000-0000-0000-0000-000000000001'::UUID FROM range(2)"
    )
    assert answer_apart(catalog, sql) == run_query(catalog, sql)
    ((when, span),) = answer_apart(
        catalog, "SELECT TIMESTAMPTZ '2020-01-01 02:00:00+02', INTERVAL 1 hour"
    )[1]
    assert when == datetime(2020, 1, 1, tzinfo=UTC)
    assert span == timedelta(hours=1)


def test_errors_of_the_other_process_are_those_of_this_one(catalog):
    for sql in ("SELECT * FROM studdies", "DROP VIEW studies", "SELECT 1; SELECT 2"):
        with pytest.raises(SpecError) as here:
            run_query(catalog, sql)
        with pytest.raises(SpecError) as there:
            answer_apart(catalog, sql)
        assert there.value.parts == here.value.parts
    with pytest.raises(SpecError, match="no such file"):
        answer_apart(catalog.parent / "none", "SELECT 1")


def test_a_damaged_catalog_is_named_by_the_other_process_too(tmp_path):
    file = tmp_path / "catalog.duckdb"
    with duckdb.connect(str(file)) as connection:
        connection.execute("CREATE TABLE hashes AS SELECT hash(range) AS n FROM range(300000)")
    content = bytearray(file.read_bytes())
    for place in range(len(content) // 3, 2 * len(content) // 3, 4096):
        content[place] ^= 255
    file.write_bytes(content)
    with pytest.raises(StoreError, match=r"Corrupt database file.*; expected an undamaged catalog"):
        answer_apart(file, "SELECT sum(n) FROM hashes")


def test_a_result_is_limited_by_its_bytes_and_not_by_its_rows_alone(catalog):
    small = Limits(memory=MEMORY, spill=0, result=MB)
    _, *blocks = read_blocks(catalog, "FROM range(5000)", 60, within=small)
    assert sum(map(len, blocks)) == 5000
    for sql in ("SELECT repeat('x', 2000000)", "FROM range(100000)", "SELECT range(100000)"):
        with pytest.raises(
            SpecError, match=r"more than 1 MiB .*; expected a result of at most 1 MiB"
        ):
            list(read_blocks(catalog, sql, 60, within=small))
    with pytest.raises(SpecError, match="a result of at most 1 MiB"):
        answer_apart(catalog, "FROM range(100000)", most_bytes=MB)


def test_a_statement_that_duckdb_does_not_interrupt_ends_with_its_process(catalog, monkeypatch):
    monkeypatch.setattr("catalog.apart._GRACE_SECONDS", -0.3)  # before its own limit has passed
    with pytest.raises(SpecError, match=r"after 1 s; expected a query that takes at most 1 s"):
        answer_apart(catalog, "SELECT count(*) FROM range(100000) a, range(100000) b", 1.0)


def test_what_a_statement_spills_is_limited_and_gone_afterwards(catalog, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    tight = Limits(memory=100 * MB, spill=MB, result=MB)
    ordered = "SELECT sum(n) FROM (SELECT row_number() OVER (ORDER BY hash(range)) AS n FROM {})"
    with pytest.raises(SpecError, match="1 MiB of temporary files"):
        list(read_blocks(catalog, ordered.format("range(6000000)"), 60, within=tight))
    assert not list(tmp_path.iterdir())


def test_every_connection_to_the_catalog_has_limits(catalog):
    asked = "SELECT current_setting('temp_directory'), current_setting('memory_limit')"
    for within in (None, Limits(MEMORY, MB, MB)):
        with open_catalog(catalog, within) as connection:
            folder, memory = connection.execute(asked).fetchall()[0]
        assert "lce-sql-" in folder
        assert within is None or memory == "192.0 MiB"


def test_by_default_half_of_the_free_memory_is_allowed_up_to_four_gigabytes(monkeypatch):
    for free, allowed in (
        (64 << 30, MAX_MEMORY_BYTES),
        (2 << 30, 1 << 30),
        (0, MIN_MEMORY_BYTES),
    ):
        monkeypatch.setattr("catalog.limits.free_memory", lambda free=free: free)
        assert limits().memory == allowed
    assert limits(9 << 30).memory == 9 << 30


def test_a_container_counts_what_it_leaves_free(tmp_path):
    for name, text in (("max", "1000000"), ("current", "700000"), ("stat", "anon 1\nfile 200000")):
        (tmp_path / f"memory.{name}").write_text(f"{text}\n", encoding="ascii")
    assert free_memory(tmp_path) == 500_000
    (tmp_path / "memory.max").write_text("max\n", encoding="ascii")
    assert free_memory(tmp_path) > 500_000, "the machine's"


def test_sizes_are_read_as_people_write_them():
    for text in ("8GB", "8g", "8 GiB", "8192MB", "8589934592"):
        assert bytes_of(text, "--memory") == 8 << 30
    for text in ("", "-1GB", "much", "1MB", "0x100000000", "1e12"):
        with pytest.raises(SpecError, match=r"--memory: got '.*at least 256 MiB, such as 8GB"):
            bytes_of(text, "--memory")
