"""Options that several commands share: the study, cell selection, and execution settings."""

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from lce_core.execution import Execution


def _studies(incomplete: str) -> list[str]:
    from flows.settings import shipped_studies

    return [name for name in shipped_studies() if name.startswith(incomplete)]


Study = Annotated[
    str, typer.Argument(help="A study's name, or a study file.", autocompletion=_studies)
]
Select = Annotated[
    str,
    typer.Option(help="Only cells with these values, such as method=yarn or variant=yarn-tuned."),
]
RetryFailed = Annotated[
    bool, typer.Option("--retry-failed", help="Retry steps that failed permanently.")
]
Budget = Annotated[
    str,
    typer.Option(help="8gpuh, 100cpuh or 2h (wall clock): all methods at as many lengths as fit."),
]
AcceptPluginChange = Annotated[
    bool,
    typer.Option(
        "--accept-plugin-change",
        help="Keep results of your plug-ins whose code changed without a new VERSION.",
    ),
]


def _option(kind: Any, about: str, metavar: str | None = None) -> Any:
    return Annotated[kind, typer.Option(metavar=metavar, help=about)]


_OPTIONS: dict[str, Any] = {
    "slots": _option(int | None, "Parallel steps. Default: one per GPU or CPU core."),
    "training_slots": _option(int | None, "Parallel training runs. Default: --slots."),
    "evaluation_slots": _option(
        int | None, "Parallel steps other than training. Default: --slots."
    ),
    "engine": _option(str | None, "Where the workers run: local, ray or ray:HOST:PORT."),
    "device": _option(str | None, "auto, cpu or cuda."),
    "processes": _option(int | None, "Processes (GPUs) of one training run."),
    "accelerate_config": _option(
        Path | None, "File of `accelerate config` with the machines of a training run."
    ),
    "micro_batch_tokens": _option(int | None, "Maximum number of tokens in one forward pass."),
    "model_folder": _option(list[str], "Folder with a base model's weights.", "NAME=FOLDER"),
    "data_folder": _option(
        list[str],
        "Folder with a data set. Instead of a folder: hub:OWNER/NAME@COMMIT for its files on the"
        " hub, or the address of rows that `lce fetch` downloaded.",
        "NAME=FOLDER",
    ),
    "plugins": _option(list[Path], "Folder with your methods/, benchmarks/, ..."),
    "execution": _option(Path | None, "YAML file with execution settings."),
}
FOLDERS = ("model_folder", "data_folder", "plugins")
"""Options for the user's folders. A command line may contain each of them several times."""
EVERY = tuple(_OPTIONS)


def with_execution(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that appends the execution options `names` to a command's own options.

    The command receives them as one `Execution`, its argument `how`, if it has one.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        hints = get_type_hints(command, include_extras=True)
        own = [
            one.replace(annotation=hints[one.name], kind=one.KEYWORD_ONLY)
            for one in inspect.signature(command).parameters.values()
            if one.name != "how"
        ]
        added = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=[] if name in FOLDERS else None,
                annotation=_OPTIONS[name],
            )
            for name in names
        ]
        parameters = [*own, *added]

        @functools.wraps(command)
        def with_options(**given: Any) -> None:
            how = _execution({name: given.pop(name) for name in names})
            command(**given, **({"how": how} if "how" in hints else {}))

        # Typer reads both the signature and the annotations.
        with_options.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        with_options.__annotations__ = {one.name: one.annotation for one in parameters}
        return with_options

    return decorate


def _execution(options: dict[str, Any]) -> Execution:
    from flows.settings import DATA_FOLDER, existing_folders, make_execution, named_folders
    from lce_core.study.plugin_folders import add_plugin_folders

    file = options.pop("execution", None)
    models, data = options.pop("model_folder", []), options.pop("data_folder", [])
    plugins = existing_folders(options.pop("plugins", []), "--plugins")
    options["model_folders"] = named_folders(models, "--model-folder") or None
    options["data_folders"] = named_folders(data, DATA_FOLDER) or None
    options["plugin_folders"] = plugins or None
    execution = make_execution(options, file)
    add_plugin_folders(execution.plugin_folders)
    return execution
