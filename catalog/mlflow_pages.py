"""Addresses of a study's pages in the MLflow UI, for whoever links to them: the only place.

MLflow makes up the numbers of experiments and runs when they are written, so the projection notes
them beside its database (mlflow/pages.json), and they are read from there: without MLflow, and
whether or not its UI runs. Its address is that of the UI that `lce up` has started over the store
(services/mlflow.json), or the one it would have by default.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from lce_core.store.odd_files import read_mapping

DEFAULT_SERVER = "http://127.0.0.1:5000"
METHODS_VIEW = "methods"
"""The saved view with one line a method, the mean over its seeds."""
EXPERIMENTS_PATH = "#/experiments?workflowType=machine_learning"
"""Path of the list of experiments: without its query MLflow opens on pages for chat agents."""
SEEDS_VIEW = "seeds"
"""The saved view of the seeds' own runs, grouped by method."""


@dataclass(frozen=True)
class MlflowPages:
    """Addresses of one study's pages."""

    server: str
    """Of the MLflow UI, such as http://127.0.0.1:5000."""
    study: str
    experiment_id: str
    runs: Mapping[str, str]
    """Ids of runs, by `run_key`."""

    @property
    def methods(self) -> str:
        """Charts with one line for every method: its mean over seeds against length."""
        return self._view(METHODS_VIEW)

    @property
    def seeds(self) -> str:
        """The same from the seeds' own runs: mean, and a band from the lowest to the highest."""
        return self._view(SEEDS_VIEW)

    def run(
        self, base_model: str, method: str, frozen: bool, seed: int | None = None
    ) -> str | None:
        """The run of a method, or of one of its seeds; None where nothing of it is done."""
        run_id = self.runs.get(run_key(self.study, base_model, method, frozen, seed))
        return None if run_id is None else f"{self._experiment}/runs/{quote(run_id)}"

    @property
    def _experiment(self) -> str:
        return f"{self.server}/{experiment_path(self.experiment_id)}"

    def _view(self, name: str) -> str:
        return f"{self.server}/{view_path(self.experiment_id, name)}"


def pages_of(home: Path, study: str) -> MlflowPages | None:
    """The pages of a study; None where MLflow does not show it yet.

    Args:
      home: folder of the store.
      study: its name.
    """
    noted = _noted(home).get(study)
    try:
        return None if noted is None else MlflowPages(server(home), **noted)
    except TypeError:  # noted by another version
        return None


def studies_with_pages(home: Path) -> list[str]:
    """Names of the studies that MLflow shows."""
    return sorted(_noted(home))


def note_pages(home: Path, study: str, experiment_id: str, runs: Mapping[str, str]) -> None:
    """Notes where a study is; those of other studies stay. One process at a time may."""
    pages = asdict(MlflowPages("", study, experiment_id, dict(sorted(runs.items()))))
    del pages["server"]
    note_path(home).parent.mkdir(parents=True, exist_ok=True)
    # Who reads pages, as the dashboard does before its first view, needs nothing of records.
    from lce_core.store.records import write_json

    write_json(note_path(home), {**_noted(home), study: pages})


def note_path(home: Path) -> Path:
    """The file in which the pages are noted."""
    return home / "mlflow" / "pages.json"


def server(home: Path) -> str:
    """Address of the MLflow UI of a store."""
    try:
        return str(read_mapping(home / "services" / "mlflow.json")["url"])
    except (OSError, ValueError, KeyError):
        return DEFAULT_SERVER


def run_key(study: str, base_model: str, method: str, frozen: bool, seed: int | None = None) -> str:
    """What names the run of a method for good, or that of one of its seeds."""
    row = f"{study}/{base_model}/{row_name(method, frozen)}"
    return row if seed is None else f"{row}/seed-{seed}"


def row_name(method: str, frozen: bool) -> str:
    """What a row of a study is called in MLflow."""
    return method if frozen else f"{method}-tuned"


def experiment_path(experiment_id: str) -> str:
    """Path of an experiment below the address of the UI."""
    return f"#/experiments/{quote(experiment_id)}"


def view_path(experiment_id: str, view: str) -> str:
    """Path of a saved view of an experiment, drawn as charts."""
    query = f"viewStateShareKey={quote(view)}&compareRunsMode=CHART&workflowType=machine_learning"
    return f"{experiment_path(experiment_id)}/runs?{query}"


def _noted(home: Path) -> dict[str, Any]:
    try:
        return {
            study: pages
            for study, pages in read_mapping(note_path(home)).items()
            if isinstance(pages, dict)
            and isinstance(pages.get("experiment_id"), str)
            and isinstance(pages.get("runs"), dict)
        }
    except (OSError, ValueError):
        return {}
