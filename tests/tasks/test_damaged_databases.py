"""A database that cannot be used is set aside and made again; any other is left alone."""

import contextlib
import logging
import re
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest
import sqlalchemy
from typer.testing import CliRunner

from catalog.build import refresh_catalog
from flows.servers import doctor
from flows.servers.daemons import environment
from flows.servers.guarded_prefect import mend_prefect, prefect_damage, prefect_database
from lce.cli import app
from lce_core.errors import SpecError
from lce_core.store.artifacts import Store
from tasks import tracking
from tasks.mending import damage, mend_projections, mended
from tasks.projections import rebuild_catalog, rebuild_mlflow, refresh, restore_mlflow
from tasks.questions import answer
from tasks.tracking.database import artifact_root, opened
from tests.support.catalogs.sample_store import STUDY
from tests.support.digests import catalog_digest
from tests.support.tracked_studies import plan_study

PREFECT_REVISION = "b75d279ba985"
"""Of one of Prefect's first migrations: the server brings such a database up to date."""


@pytest.mark.slow
def test_databases_lie_in_the_home_whatever_its_name(tmp_path):
    """MLflow, Prefect and DuckDB; a home named `%41` stands where `A` would be its decoded name."""
    home = tmp_path / "%41 [1]*#'\u00e9;\n"
    home.mkdir()
    refresh_catalog(Store(home))
    with opened(home) as client:
        folder = artifact_root(home) / "a"
        run = client.create_run(client.create_experiment("a", folder.as_uri()))
        client.log_text(run.info.run_id, "text", "note.txt")
        client.set_terminated(run.info.run_id)
    assert list(folder.rglob("note.txt"))
    assert tracking.database(home).is_file()
    url = environment(home)["PREFECT_SERVER_DATABASE_CONNECTION_URL"]
    prefect_database(home).parent.mkdir()
    engine = sqlalchemy.create_engine(url.replace("+aiosqlite", ""))
    with contextlib.closing(engine.connect()) as connection:
        connection.exec_driver_sql("CREATE TABLE notes (text TEXT)")
    engine.dispose()
    assert prefect_database(home).is_file()
    assert [path.name for path in tmp_path.iterdir()] == [home.name]


def garbage(path: Path) -> None:
    path.write_bytes(b"no database " * 1000)


def overwrite_the_middle(path: Path) -> None:
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 9000] = b"\xa5" * 9000
    path.write_bytes(content)


def a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()
    (path / "mine").write_text("kept", encoding="utf-8")


def another_schema(path: Path) -> None:
    path.unlink()
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE notes (text TEXT)")
        database.commit()


def a_newer_revision(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("UPDATE alembic_version SET version_num = 'ffffffffffff'")
        database.commit()


def empty(path: Path) -> None:
    path.write_bytes(b"")


def empty_beside_its_log(path: Path) -> None:
    empty(path)
    path.with_name(f"{path.name}-wal").write_bytes(b"what was not written back yet")


def schema_of_other_bytes(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"CREATE TABLE", b"CREATE \xffABLE"))


SQLITE_HARM = [
    schema_of_other_bytes,
    garbage,
    overwrite_the_middle,
    a_folder,
    another_schema,
    a_newer_revision,
]


def kept(path: Path) -> Path:
    """The one database set aside beside `path`, without its side files."""
    pattern = re.escape(path.name) + r"\.set-aside-\w+"
    (found,) = (one for one in path.parent.iterdir() if re.fullmatch(pattern, one.name))
    return found


def content(path: Path) -> object:
    return [one.name for one in path.iterdir()] if path.is_dir() else path.read_bytes()


def one_line(path: Path, printed: str) -> bool:
    renamed = rf"renamed it to {re.escape(path.name)}\.set-aside-\S+ and creates a new one\.\n"
    return (
        re.fullmatch(rf"lce: {re.escape(str(path))} cannot be used: .+{renamed}", printed)
        is not None
    )


@pytest.fixture
def prefect(tmp_path) -> Path:
    (tmp_path / "prefect").mkdir()
    with contextlib.closing(sqlite3.connect(prefect_database(tmp_path))) as database:
        database.execute("CREATE TABLE alembic_version (version_num TEXT)")
        database.execute("INSERT INTO alembic_version VALUES (?)", [PREFECT_REVISION])
        database.execute("CREATE TABLE flow_run (name TEXT)")
        rows = [(f"{n}" * 20,) for n in range(2000)]
        database.executemany("INSERT INTO flow_run VALUES (?)", rows)
        database.commit()
    return tmp_path


@pytest.mark.parametrize("harm", [*SQLITE_HARM, empty_beside_its_log], ids=lambda one: one.__name__)
def test_a_prefect_database_that_no_server_starts_with_is_set_aside(prefect, harm, capsys):
    path = prefect_database(prefect)
    harm(path)
    before = content(path)
    assert prefect_damage(prefect)
    mend_prefect(prefect)
    assert not path.exists()
    assert content(kept(path)) == before
    assert one_line(path, capsys.readouterr().err)


def test_side_files_move_with_their_database_and_a_second_one_gets_its_own_name(prefect):
    path = prefect_database(prefect)
    garbage(path)
    for end in ("-wal", "-shm", "-journal"):
        path.with_name(f"{path.name}{end}").write_text(end, encoding="utf-8")
    mend_prefect(prefect)
    first = kept(path)
    assert [one for one in path.parent.iterdir() if one.name.startswith("prefect.db-")] == []
    for end in ("-wal", "-shm", "-journal"):
        assert first.with_name(f"{first.name}{end}").read_text(encoding="utf-8") == end
    path.write_text("second" * 1000, encoding="utf-8")
    mend_prefect(prefect)
    assert first.read_bytes().startswith(b"no database")
    contents = [one.read_bytes()[:6] for one in path.parent.glob("*.set-aside-*")]
    assert b"second" in contents


def test_an_older_prefect_database_and_an_empty_one_are_left_to_prefect(prefect):
    assert prefect_damage(prefect) is None
    empty(prefect_database(prefect))
    assert prefect_damage(prefect) is None
    prefect_database(prefect).unlink()
    assert prefect_damage(prefect) is None


@pytest.mark.parametrize("mode", ["delete", "wal"])
def test_a_database_that_another_process_is_writing_to_is_left_alone(prefect, mode, capsys):
    path = prefect_database(prefect)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute(f"PRAGMA journal_mode = {mode}")
        writer.execute("BEGIN EXCLUSIVE")
        writer.execute("DELETE FROM flow_run")
        mend_prefect(prefect)
        writer.execute("COMMIT")
    assert path.is_file()
    assert capsys.readouterr().err == ""


def test_a_database_out_of_reach_is_left_alone(prefect, monkeypatch):
    # SQLite's codes for what is no damage: the disk, permissions, memory, and a log to roll back.
    for code in ("CANTOPEN", "READONLY", "FULL", "IOERR", "PERM", "BUSY", "NOMEM"):
        error = sqlite3.OperationalError(code)
        error.sqlite_errorcode = getattr(sqlite3, f"SQLITE_{code}")

        def fail(*_: object, raised: Exception = error, **__: object) -> None:
            raise raised

        with monkeypatch.context() as patch:
            patch.setattr(sqlite3, "connect", fail)
            assert prefect_damage(prefect) is None


@pytest.fixture(scope="module")
def shown(tmp_path_factory) -> Path:
    store = Store(tmp_path_factory.mktemp("shown") / "home")
    store.prepare()
    plan_study(store)
    plan_study(store, study="other", seeds=(5,))
    assert rebuild_mlflow(store.home) == ["other", "small"]
    return store.home


@pytest.fixture
def tracked(shown, tmp_path) -> Path:
    return shutil.copytree(shown, tmp_path / "home")


def studies_in_mlflow(home: Path) -> list[str]:
    with contextlib.closing(sqlite3.connect(tracking.database(home))) as database:
        rows = database.execute("SELECT name FROM experiments WHERE name != 'Default' ORDER BY 1")
        return [name for (name,) in rows]


@pytest.mark.slow
@pytest.mark.parametrize("harm", [garbage, a_newer_revision, empty], ids=lambda one: one.__name__)
def test_the_doctor_says_which_mlflow_database_cannot_be_used_and_changes_nothing(tracked, harm):
    path = tracking.database(tracked)
    assert doctor._mlflow_database(tracked).ok
    harm(path)
    before = content(path)
    check = doctor._mlflow_database(tracked)
    assert not check.ok
    assert str(path) in check.detail
    assert "lce rebuild mlflow" in check.remedy
    assert content(path) == before
    assert not tracking.has_usable_database(tracked)


@pytest.mark.slow
def test_an_mlflow_database_that_cannot_be_used_is_set_aside_and_made_again(
    tracked, capsys, caplog
):
    # lce sets this level before it imports MLflow; an earlier test may have imported it first.
    caplog.set_level(logging.WARNING, "mlflow")
    path = tracking.database(tracked)
    a_newer_revision(path)
    before = content(path)
    restore_mlflow(tracked)
    assert studies_in_mlflow(tracked) == ["other", "small"]
    assert content(kept(path)) == before
    assert one_line(path, capsys.readouterr().err)
    assert tracking.damage(tracked) is None


def test_a_run_sets_damaged_projections_aside_as_it_starts(home, capsys):
    tracking.database(home).parent.mkdir()
    tracking.database(home).write_bytes(b"no database " * 1000)
    garbage(home / "catalog.duckdb")
    mend_projections(home)
    first, second = capsys.readouterr().err.splitlines(keepends=True)
    assert one_line(home / "catalog.duckdb", first)
    assert one_line(tracking.database(home), second)
    mend_projections(home)
    assert capsys.readouterr().err == ""


@pytest.fixture
def home(small_sample, tmp_path) -> Path:
    return shutil.copytree(small_sample, tmp_path / "home")


def another_duckdb_file(path: Path) -> None:
    path.unlink()
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE mine AS SELECT 42 AS answer")


def another_storage_version(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[12:20] = (9999).to_bytes(8, "little")
    path.write_bytes(content)


@pytest.mark.parametrize(
    "harm",
    [garbage, overwrite_the_middle, empty, a_folder, another_duckdb_file, another_storage_version],
    ids=lambda one: one.__name__,
)
def test_the_doctor_says_which_catalog_cannot_be_used_and_changes_nothing(home, harm):
    path = home / "catalog.duckdb"
    assert doctor._catalog(home).ok
    harm(path)
    before = content(path)
    check = doctor._catalog(home)
    assert not check.ok
    assert "lce rebuild catalog" in check.remedy
    assert content(path) == before


@pytest.mark.parametrize(
    ("harm", "again"),
    [
        (overwrite_the_middle, mended),
        (a_folder, rebuild_catalog),
        (another_duckdb_file, refresh),
    ],
    ids=["before it is read", "by a rebuild", "by a run"],
)
def test_a_catalog_that_cannot_be_used_is_set_aside_and_made_again(home, harm, again, capsys):
    path = home / "catalog.duckdb"
    digest = catalog_digest(path)
    harm(path)
    before = content(path)
    again(home)
    assert content(kept(path)) == before
    assert catalog_digest(path) == digest
    assert one_line(path, capsys.readouterr().err)
    assert damage(home) is None


def test_a_catalog_without_its_note_or_open_for_writing_elsewhere_is_left_alone(home):
    path = home / "catalog.duckdb"
    path.touch()
    code = f"import duckdb; c = duckdb.connect({str(path)!r}); print(flush=True); input()"
    (home / ".catalog.duckdb.origin.json").unlink()
    assert damage(home) is None
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        assert damage(home) is None
        mended(home)
        writer.communicate(b"\n")
    assert list(home.glob("*.set-aside-*")) == []


def test_the_log_of_a_catalog_that_somebody_changed_moves_with_it(home):
    path, log = home / "catalog.duckdb", home / "catalog.duckdb.wal"
    log.write_bytes(b"of the file that was there")
    rebuild_catalog(home)
    assert not log.exists()
    assert path.with_name(f"{kept(path).name}.wal").read_bytes() == b"of the file that was there"


def test_without_a_store_a_damaged_catalog_stays_and_is_refused(tmp_path):
    path = tmp_path / "catalog.duckdb"
    garbage(path)
    mended(tmp_path)
    assert path.is_file()
    with pytest.raises(SpecError, match="not a valid DuckDB"):
        answer(tmp_path, "SELECT 1", "json")


@pytest.mark.parametrize(
    "command",
    [["sql", "SELECT count(*) FROM cells"], ["claims", STUDY], ["report", STUDY]],
    ids=lambda one: one[0],
)
def test_commands_that_read_the_catalog_make_a_damaged_one_again(home, command, monkeypatch):
    monkeypatch.setenv("LCE_HOME", str(home))
    garbage(home / "catalog.duckdb")
    ended = CliRunner().invoke(app, command)
    assert ended.exit_code == 0, ended.output
    assert one_line(home / "catalog.duckdb", ended.stderr)
