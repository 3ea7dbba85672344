"""Build the URLs of a study's pages in the MLflow UI.

MLflow assigns ids to experiments and runs when they are written. `lce` therefore writes the ids to
a file beside MLflow's database (mlflow/pages.json). This module reads the file, so it needs neither
MLflow nor a running UI. The server address is that of the UI started by `lce up` for the store
(services/mlflow.json), or the default address.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from lce_core.store.odd_files import read_mapping
from lce_core.study.variants import variant_name

DEFAULT_SERVER = "http://127.0.0.1:5000"
METHODS_VIEW = "methods"
"""Name of the saved view whose charts have one line per method, the mean over its seeds."""
EXPERIMENTS_PATH = "#/experiments?workflowType=machine_learning"
"""URL path of the experiment list. Without the query part, MLflow opens its pages for agents."""
SEEDS_VIEW = "seeds"
"""Name of the saved view with one run per seed, grouped by method."""


@dataclass(frozen=True)
class MlflowPages:
    """URLs of one study's pages in the MLflow UI."""

    server: str
    """Base URL of the MLflow UI, such as http://127.0.0.1:5000."""
    study: str
    experiment_id: str
    runs: Mapping[str, str]
    """MLflow's run ids; `run_key` returns their keys."""
    team: str | None = None
    """URL of the team's server that shows the study; None if the store's own database does."""

    @property
    def methods(self) -> str:
        """URL of charts of score against length, one line per method: the mean over seeds."""
        return f"{self.server}/{view_path(self.experiment_id, METHODS_VIEW)}"

    @property
    def seeds(self) -> str:
        """URL of charts of score against length with a band from the lowest to the highest seed."""
        return f"{self.server}/{view_path(self.experiment_id, SEEDS_VIEW)}"

    def run(self, base_model: str, method: str, frozen: bool) -> str | None:
        """Return the URL of a method's mean over its seeds; None if MLflow has no such run."""
        run_id = self.runs.get(run_key(self.study, base_model, method, frozen))
        page = f"{self.server}/#/experiments/{quote(self.experiment_id)}"
        return None if run_id is None else f"{page}/runs/{quote(run_id)}"


def pages_of(home: Path, study: str) -> MlflowPages | None:
    """Return the URLs of a study's pages; None if the study was never written to MLflow."""
    noted = _noted(home).get(study)
    return None if noted is None else MlflowPages(noted["team"] or server(home), **noted)


def studies_with_pages(home: Path) -> list[str]:
    return sorted(_noted(home))


def note_pages(
    home: Path, study: str, experiment_id: str, runs: Mapping[str, str], team: str | None = None
) -> None:
    """Write a study's experiment and run ids to `mlflow/pages.json`; keep those of other studies.

    The file is not locked: only one process at a time may call this.
    """
    pages = asdict(MlflowPages("", study, experiment_id, dict(sorted(runs.items())), team))
    del pages["server"]
    _write_note(home, {**_noted(home), study: pages})


def forget_own_pages(home: Path) -> None:
    """Keep only studies that a team's server shows, because the store's own database is gone."""
    _write_note(home, {study: pages for study, pages in _noted(home).items() if pages.get("team")})


def _note_path(home: Path) -> Path:
    return home / "mlflow" / "pages.json"


def server(home: Path) -> str:
    try:
        return str(read_mapping(home / "services" / "mlflow.json")["url"])
    except (OSError, ValueError, KeyError):
        return DEFAULT_SERVER


def own_servers(home: Path) -> tuple[str, str]:
    """Return the URLs at which `lce up` serves the MLflow database of the store."""
    return DEFAULT_SERVER, server(home)


def run_key(study: str, base_model: str, method: str, frozen: bool, seed: int | None = None) -> str:
    """Return the key of a run, or of the mean over seeds; it outlives the run's MLflow id."""
    key = f"{study}/{base_model}/{variant_name(method, frozen)}"
    return key if seed is None else f"{key}/seed-{seed}"


def view_path(experiment_id: str, view: str) -> str:
    """Return the path of an experiment's saved view, as charts, below the MLflow UI's URL."""
    query = f"viewStateShareKey={quote(view)}&compareRunsMode=CHART&workflowType=machine_learning"
    return f"#/experiments/{quote(experiment_id)}/runs?{query}"


def _write_note(home: Path, pages: Mapping[str, Any]) -> None:
    # Imported here, because readers such as the dashboard's first view do not need records.
    from lce_core.store.records import write_json

    _note_path(home).parent.mkdir(parents=True, exist_ok=True)
    write_json(_note_path(home), pages)


def _noted(home: Path) -> dict[str, Any]:
    try:
        return {
            study: pages
            for study, pages in read_mapping(_note_path(home)).items()
            if isinstance(pages, dict)
            and isinstance(pages.get("experiment_id"), str)
            and isinstance(pages.get("runs"), dict)
        }
    except (OSError, ValueError):
        return {}
