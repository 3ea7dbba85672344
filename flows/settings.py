"""Find the store's folder, study files and a browser, and build the execution settings.

Only this module converts environment variables and command-line options into settings.
"""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic import ValidationError

from lce_core.errors import SpecError, did_you_mean
from lce_core.execution import LOCAL, AccelerateConfig, Execution, check_home, check_path
from lce_core.hub import is_address
from lce_core.spec_errors import spec_error
from lce_core.study.plain_yaml import beginning_of, plain_yaml
from lce_core.study.plugin_folders import add_plugin_folders
from lce_core.study.spec import StudySpec
from lce_core.study.study_file import load_study
from tasks.machines import Machines
from tasks.ray_engine.cluster import machines_for

DATA_FOLDER = "--data-folder"
DEFAULT_HOME = "lce-home"
LCE_MLFLOW_URI = "LCE_MLFLOW_URI"
STUDIES = Path(__file__).parent / "studies"
BROWSER = "LCE_CHROMIUM"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
MAX_CPU_SLOTS = 8
"""More workers are rarely faster: each has its own copy of torch (0.5 GB)."""


def home() -> Path:
    """Return the store's folder, $LCE_HOME or ./lce-home; refuse one that databases cannot use."""
    found = home_path()
    check_home(found)
    return found


def home_path() -> Path:
    return Path(os.environ.get("LCE_HOME", DEFAULT_HOME)).absolute()


def mlflow_server(home: Path) -> str | None:
    """Return the URL of the team's MLflow server: $LCE_MLFLOW_URI, or $MLFLOW_TRACKING_URI.

    None stands for the store's own database. $MLFLOW_TRACKING_URI counts only if it is an HTTP
    address other than that of `lce up`.
    """
    from tasks.tracking import own_servers  # imports more than the other settings need

    name = LCE_MLFLOW_URI if os.environ.get(LCE_MLFLOW_URI) else "MLFLOW_TRACKING_URI"
    given = os.environ.get(name, "").rstrip("/")
    parts = urlsplit(given)
    is_http = parts.scheme in ("http", "https") and bool(parts.hostname)
    if name != LCE_MLFLOW_URI and (not is_http or given in own_servers(home)):
        return None
    if not is_http:
        raise SpecError(
            name,
            repr(given),
            "the address of an MLflow server, such as https://mlflow.example.org",
            f"correct {name}, or unset it to use the store's own MLflow database",
        )
    if parts.username or parts.password:
        raise SpecError(
            name,
            "an address with a user name or password",
            "an address without them, because records and reports show it",
            "set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN",
        )
    return given


def mlflow_environment(home: Path) -> dict[str, str]:
    found = mlflow_server(home)
    if found is None:
        return {}
    credentials = {key: text for key, text in os.environ.items() if key.startswith("MLFLOW_")}
    return {**credentials, LCE_MLFLOW_URI: found}


def browser() -> Path:
    named = os.environ.get(BROWSER)
    for name in [named] if named else BROWSERS:
        if found := shutil.which(name):
            return Path(found).absolute()
    raise SpecError(
        "--format pdf",
        f"{BROWSER}={named}, which is not a program" if named else "no browser in $PATH",
        "an installed Chromium or Chrome, which prints the report",
        f"install the package chromium, or set {BROWSER} to the program",
    )


def shipped_studies() -> list[str]:
    return sorted(path.stem for path in STUDIES.glob("*.yaml"))


def study_path(study: str) -> Path:
    if study in shipped_studies():
        return STUDIES / f"{study}.yaml"
    path = Path(study)
    check_path("study file", path)
    if is_file(path):
        return path
    if path.suffix in (".yaml", ".yml") or os.sep in study:
        raise SpecError(
            study,
            "no such file",
            "the path of a study file or the name of a shipped study",
            "check the path",
        )
    raise SpecError(
        "study",
        repr(study),
        "the name of a shipped study, or the path of a study file",
        did_you_mean(study, shipped_studies()),
    )


def study_name(study: str) -> str:
    """Return the name in a study file without checking the rest; `study` itself if no file."""
    if not (Path(study).suffix in (".yaml", ".yml") or is_file(Path(study))):
        return study
    path = study_path(study)
    try:
        content = plain_yaml(beginning_of(path), study)
    except (OSError, UnicodeDecodeError):
        content = None
    if isinstance(content, dict) and isinstance(content.get("study"), str):
        return str(content["study"])
    return load_study(path).study  # raises the error


def is_file(path: Path) -> bool:
    return os.path.isfile(path)  # noqa: PTH113 - `Path.is_file` raises an OSError for some paths


def open_study(study: str, execution: Execution) -> tuple[StudySpec, str]:
    """Register the execution's plug-in folders; return the study, and its file as in errors."""
    add_plugin_folders(execution.plugin_folders)
    path = study_path(study)
    return load_study(path), path.name if path.parent == STUDIES else str(path)


def make_execution(options: Mapping[str, Any] | None = None, file: Path | None = None) -> Execution:
    """Return the execution settings: defaults, overridden by a YAML file, then by options.

    Options with the value None are ignored. By default there is one slot per GPU or else per core,
    up to `MAX_CPU_SLOTS`, or in a Ray cluster per `threads` cores.
    """
    given = {**_read(file), **{k: v for k, v in (options or {}).items() if v is not None}}
    given.setdefault("home", home())
    if isinstance(named := given.get("accelerate_config"), str | Path):
        config = given["accelerate_config"] = read_accelerate_config(Path(named))
        given.setdefault("processes", config.processes_here)
        if config.num_machines > 1:
            given.setdefault("training_slots", 1)
    try:
        execution = Execution.model_validate(given)
    except ValidationError as error:
        raise spec_error(error, str(file or "execution"), Execution) from None
    if execution.accelerate_config:
        _check_machines(execution, execution.accelerate_config)
    here = machines_for(execution)
    _check_gpus(execution, here)
    if "slots" not in given:
        slots = here.num_gpus or min(here.cpus, MAX_CPU_SLOTS)
        if not here.num_gpus and execution.engine != LOCAL:
            slots = max(1, here.cpus // execution.threads)
        execution = execution.model_copy(update={"slots": slots})
        execution.model_fields_set.discard("slots")  # `slots_here` asks whether the user set it
    return execution


def read_accelerate_config(file: Path) -> AccelerateConfig:
    try:
        return AccelerateConfig.model_validate(_read(file))
    except ValidationError as error:
        raise spec_error(error, str(file), AccelerateConfig) from None


def joined_machine(file: Path, rank: int | None) -> AccelerateConfig:
    """Return an Accelerate file's machines, as seen from a machine other than the main one."""
    machines = read_accelerate_config(file)
    rank = machines.machine_rank if rank is None else rank
    if not 1 <= rank < machines.num_machines:
        raise SpecError(
            "--machine-rank",
            f"{rank} of {machines.num_machines} machines",
            "a number from 1, the first machine after the main one, to num_machines - 1",
            "give --machine-rank, or start `lce run` or `lce worker` on the main machine",
        )
    return machines.model_copy(update={"machine_rank": rank})


def named_folders(pairs: list[str], option: str) -> dict[str, Path]:
    """Parse ["name=folder", ...] into absolute paths (--data-folder: or addresses) by name."""
    folders = {}
    for pair in pairs:
        name, _, folder = pair.partition("=")
        if not (name and folder):
            raise SpecError(option, repr(pair), "the form NAME=FOLDER", "give both parts")
        path = Path(folder)
        if option == DATA_FOLDER and is_address(path):
            folders[name] = path
        else:
            (folders[name],) = existing_folders([path], option)
    return folders


def existing_folders(folders: list[Path], option: str) -> tuple[Path, ...]:
    for folder in folders:
        if not os.path.isdir(folder):  # noqa: PTH112 - `Path.is_dir` may raise an OSError
            raise SpecError(
                option, f"{folder}, which is not a folder", "an existing folder", "check the path"
            )
    return tuple(folder.absolute() for folder in folders)


def _check_machines(execution: Execution, config: AccelerateConfig) -> None:
    if execution.processes != config.processes_here:
        raise SpecError(
            "execution.processes",
            execution.processes,
            f"{config.processes_here}: num_processes / num_machines of accelerate_config",
            "leave processes out, or change num_processes in the file",
        )
    if config.machine_rank:
        raise SpecError(
            "accelerate_config: machine_rank",
            config.machine_rank,
            "0, the rank of the main machine",
            "run `lce join` with this file on all other machines",
        )
    if config.num_machines > 1 and (execution.training_slots, execution.engine) != (1, LOCAL):
        raise SpecError(
            "accelerate_config: num_machines",
            f"{config.num_machines} with training_slots {execution.training_slots} and engine"
            f" {execution.engine}",
            f"training_slots 1 and engine {LOCAL}, because one run uses all machines",
            "leave training_slots and engine out",
        )


def _check_gpus(execution: Execution, here: Machines) -> None:
    if not here.num_gpus and execution.device != "cuda":
        return
    if not here.num_gpus:
        raise SpecError(
            "execution.device",
            "cuda, but no GPU is visible here",
            "a device of this machine",
            "set device to auto or cpu",
        )
    if max(here.gpus) < execution.processes:
        raise SpecError(
            "execution.processes",
            f"{max(here.gpus)} visible GPU(s)",
            f"at least {execution.processes}, one for each process of a training run",
            "lower --processes",
        )
    needed = {
        "training_slots": (execution.training_slots or 0) * execution.processes,
        "evaluation_slots": execution.evaluation_slots or 0,
    }
    for name, number in needed.items():
        if here.num_gpus < number:
            raise SpecError(
                f"execution.{name}",
                f"{getattr(execution, name)} slots, which need {number} GPUs",
                f"slots for the {here.num_gpus} visible GPUs",
                f"lower --{name.replace('_', '-')}",
            )


def _read(file: Path | None) -> dict[str, Any]:
    if file is None:
        return {}
    try:
        text = beginning_of(file)
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(
            str(file), error, "a readable YAML file of settings", "check the path"
        ) from None
    content = plain_yaml(text, str(file))
    if not isinstance(content, dict):
        raise SpecError(
            str(file), repr(content), "a mapping of settings", "write one `key: value` per line"
        )
    return content
