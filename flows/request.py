"""Request of a command: a study, the settings of its computation, and the plan."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from flows.settings import (
    DATA_FOLDER,
    existing_folders,
    is_file,
    named_folders,
    open_study,
    shipped_studies,
    study_name,
    study_path,
)
from lce_core.benchmarks import BENCHMARKS
from lce_core.errors import SpecError, did_you_mean
from lce_core.execution import Execution
from lce_core.hub import is_address
from lce_core.store.artifacts import Store
from lce_core.store.file_facts import FileFacts
from lce_core.study.looks import without_settled
from lce_core.study.plan import StudyPlan, compile_study
from lce_core.study.spec import StudySpec
from lce_core.study.study_file import load_study


@dataclass(frozen=True)
class Request:
    """A study, its execution settings and the plan compiled from both."""

    study: str
    """Name of a shipped study, or path."""
    execution: Execution
    plan: StudyPlan
    """The plan without the later seeds of methods that a look has settled."""
    whole: StudyPlan
    """The plan with all seeds of all methods."""
    where: str
    """The study's file as errors name it: NAME.yaml if shipped, else the path."""

    def arguments(self) -> list[str]:
        """Return the arguments of `lce run` for this study alone, with absolute paths."""
        execution, data = self.execution, self.execution.data_folders
        known = _data_names(execution, [self.study]) if data else set()
        shipped = self.study in shipped_studies()
        found = [self.study if shipped else str(Path(self.study).absolute())]
        for folder in execution.plugin_folders:
            found += ["--plugins", str(folder)]
        for option, folders in (
            (DATA_FOLDER, {name: data[name] for name in data if name in known}),
            ("--model-folder", execution.model_folders),
        ):
            for name, folder in sorted(folders.items()):
                found += [option, f"{name}={folder}"]
        return found


def as_last_run(study: str, execution: Execution) -> tuple[str, Execution]:
    """Complete a study and its settings by the arguments of its last run in this home.

    If the user names no folders, those of the last run count, as far as they still exist. A study
    that is neither shipped nor a file may be the name of a study that ran from a file.
    """
    stored = Store(execution.home).studies.arguments(study_name(study))
    if not stored:
        return study, execution
    file, *options = stored
    study = study if _is_known(study) else file
    if execution.plugin_folders or execution.data_folders or execution.model_folders:
        return study, execution
    folders: dict[str, list[str]] = {"--plugins": [], DATA_FOLDER: [], "--model-folder": []}
    for option, value in zip(options[::2], options[1::2], strict=False):
        folder = Path(value if option == "--plugins" else value.partition("=")[2])
        if option in folders and (is_address(folder) or folder.exists()):
            folders[option].append(value)
    found = {
        "plugin_folders": existing_folders([*map(Path, folders["--plugins"])], "--plugins"),
        "data_folders": named_folders(folders[DATA_FOLDER], DATA_FOLDER),
        "model_folders": named_folders(folders["--model-folder"], "--model-folder"),
    }
    return study, execution.model_copy(update=found)


def found_by_name(study: str, execution: Execution) -> tuple[str, Execution]:
    """Apply `as_last_run` only to the name of a study that ran from a file.

    Commands that compute use it: they take no folder from an earlier run that the user could name.
    """
    return (study, execution) if _is_known(study) else as_last_run(study, execution)


def _is_known(study: str) -> bool:
    return study in shipped_studies() or is_file(Path(study))


def compile_request(study: str, execution: Execution, together: Sequence[str] = ()) -> Request:
    spec, where = open_study(study, execution)
    _require_data(execution, [study, *together])
    with FileFacts(execution.home).in_use():
        whole = compile_study(spec, execution.data_folders, execution.model_folders, where)
    plan = whole
    if spec.looks:
        plan = without_settled(whole, Store(execution.home).studies.looks(whole.to_json()))
    return Request(study, execution, plan, whole, where)


def _require_data(execution: Execution, studies: Sequence[str]) -> None:
    if not execution.data_folders:
        return
    known = _data_names(execution, studies)
    for name, folder in execution.data_folders.items():
        if name not in known:
            raise SpecError(
                DATA_FOLDER,
                f"{name}={folder}",
                "the name of a data set that a benchmark or the study's corpus reads",
                did_you_mean(name, known),
            )
        if not is_address(folder):
            existing_folders([folder], DATA_FOLDER)


def _data_names(execution: Execution, studies: Sequence[str]) -> set[str]:
    """Return the data sets of all benchmarks, and of corpora of `studies` and shipped studies.

    Names of other studies are known too: several studies can share one execution file.
    """
    loaded = map(BENCHMARKS.load, BENCHMARKS.names())
    known = {name for benchmark in loaded for name in benchmark.all_data_sets()}
    known |= _folders(open_study(study, execution)[0] for study in studies)
    # Reading all shipped studies takes 1.5 s.
    return known if execution.data_folders.keys() <= known else known | _shipped_folders()


@cache
def _shipped_folders() -> set[str]:
    return _folders(load_study(study_path(name)) for name in shipped_studies())


def _folders(studies: Iterable[StudySpec]) -> set[str]:
    return {study.corpus.folder for study in studies if hasattr(study.corpus, "folder")}
