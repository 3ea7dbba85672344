"""The Python interface: read results as tables, plan studies and run them.

`Results` returns DuckDB relations. `.df()` converts a relation to pandas, `.to_arrow_table()` to
Arrow, `.pl()` to polars if it is installed; a relation prints itself as a table.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import astuple, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from lce_core.environment import for_child
from lce_core.errors import ProcessFailedError, SpecError, did_you_mean

if TYPE_CHECKING:
    from duckdb import DuckDBPyRelation

    from lce_core.execution import Execution

_RUN = "import sys; sys.argv[0] = 'lce'; from lce.cli import main; main()"
_VIEWS = "SELECT view_name FROM duckdb_views() WHERE schema_name = 'main' AND NOT internal"


class Results:
    """The results of all studies in one home, as of the moment when it was opened.

    Queries may use every file, setting and data frame that the Python process can use; only the
    catalog itself is read-only. Use `lce sql` for SQL from people you do not trust.
    """

    def __init__(self, home: str | Path) -> None:
        """Open the catalog of a home; raise SpecError if it has none."""
        from catalog.queries import connect
        from tasks.mending import mended

        self._connection = connect(mended(Path(home).absolute()))

    def sql(self, query: str, **parameters: Any) -> DuckDBPyRelation:
        """Run SQL over the views of the catalog, and over data frames of the caller by their names.

        The parameters are the values of the statement's `$name` parameters.
        """
        return self._connection.sql(query, params=parameters or None)

    def scores(self, study: str | None = None) -> DuckDBPyRelation:
        """Return the view `scores`: a row per cell and metric, of one study or of all.

        Raises:
          SpecError: if the home does not have the study; so do `samples` and `paper`.
        """
        return self._of("FROM scores", study)

    def samples(self, study: str | None = None) -> DuckDBPyRelation:
        """Return the view `study_samples`: a row per prompt or text window."""
        return self._of("FROM study_samples", study)

    def claims(self, study: str) -> DuckDBPyRelation:
        """Return the findings of a study, as `lce claims --json` prints them, one row each."""
        from dashboards.claims import Claim, claims

        found = [astuple(claim) for claim in claims(self._connection, study)]
        return self._table([field.name for field in fields(Claim)], found)

    def paper(self, study: str | None = None) -> DuckDBPyRelation:
        """Return the view `paper_comparison`: figures of the papers, and ours beside them."""
        return self._of("FROM paper_comparison", study)

    def diff(self, other: str | Path | Results, study: str | None = None) -> DuckDBPyRelation:
        """Return the scores that differ from those of another home, as `lce diff --json` does.

        Args:
          other: the other home, or its results.
          study: name of the study to compare; None for all studies.

        Raises:
          SpecError: if `other` has no catalog, or neither home has a score of the study.
        """
        from tasks.differences import CELLS, COLUMNS, SCORES, compare

        there = other if isinstance(other, Results) else Results(other)
        found = compare(self.sql(SCORES).fetchall(), there.sql(SCORES).fetchall(), study)
        return self._table((*COLUMNS, *CELLS), found.rows)

    def write_parquet(self, folder: str | Path) -> list[Path]:
        """Write every view of the catalog to a Parquet file in `folder`; return the files."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        written = []
        for (view,) in self._connection.sql(_VIEWS).order("ALL").fetchall():
            file = folder / f"{view}.parquet"
            self._connection.table(view).write_parquet(str(file))
            written.append(file)
        return written

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def _table(self, columns: Sequence[str], rows: list[tuple[Any, ...]]) -> DuckDBPyRelation:
        import pyarrow as pa

        # Named columns, because a table of no rows has columns too.
        content = {name: [row[n] for row in rows] for n, name in enumerate(columns)}
        return self._connection.from_arrow(pa.table(content))

    def _of(self, query: str, study: str | None) -> DuckDBPyRelation:
        if study is None:
            return self.sql(query)
        known = [name for (name,) in self.sql("SELECT DISTINCT study FROM studies").fetchall()]
        if study not in known:
            raise SpecError(
                "study", repr(study), "a study of this home", did_you_mean(study, known)
            )
        return self.sql(f"FROM ({query}) WHERE study = $study", study=study)


def open_results(home: str | Path | None = None) -> Results:
    """Open the results of a home, by default of $LCE_HOME or `./lce-home`.

    Raises:
      SpecError: if the home has no catalog.
    """
    from flows.settings import home as default_home

    return Results(home or default_home())


def plan(study: str | Path, select: str = "", **execution: Any) -> dict[str, Any]:
    """Return what `lce plan STUDY --json` prints: every cell and step with state, reason and price.

    Args:
      study: name of a shipped study, or path of a study file.
      select: "axis=value,..." to keep only matching cells.
      **execution: keys of an execution file, such as `home`, `plugin_folders` or `slots`.

    Raises:
      SpecError: if the request is wrong.
    """
    from lce.views.planning import as_json, inspect_study

    return as_json(inspect_study(str(study), _execution(execution), select))


def run(study: str | Path, select: str = "", **execution: Any) -> Results:
    """Run a study as `lce run` does, print its output, and return the results.

    The run is a process of its own, so that a notebook can start and interrupt it.

    The arguments are those of `plan`.

    Raises:
      SpecError: if a key of `execution` is unknown or its value is wrong.
      ProcessFailedError: if the run ends with an exit code other than 0; its output says why.
    """
    settings = _execution(execution)
    with tempfile.NamedTemporaryFile("w", suffix=".yaml", encoding="utf-8") as file:
        # JSON is YAML.
        file.write(settings.model_dump_json(exclude_unset=True))
        file.flush()
        options = ["--execution", file.name, *(["--select", select] if select else [])]
        code, last = _echoed([sys.executable, "-c", _RUN, "run", str(study), *options], settings)
    if code:
        raise ProcessFailedError(
            f"lce run {study}",
            f"exit code {code}; its last line is: {last}",
            "exit code 0",
            "see the printed output; a second call continues where this one stopped",
        )
    return Results(settings.home)


def _execution(given: dict[str, Any]) -> Execution:
    from flows.settings import make_execution
    from lce_core.study.plugin_folders import add_plugin_folders

    settings = make_execution(given)
    add_plugin_folders(settings.plugin_folders)
    return settings


def _echoed(command: Sequence[str], settings: Execution) -> tuple[int, str]:
    environment = {**for_child(os.environ), "LCE_HOME": str(settings.home)}
    last = ""
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout
        for line in process.stdout:
            print(line, end="", flush=True)  # noqa: T201 - a notebook shows what is printed
            last = line.strip() or last
    return process.returncode, last
