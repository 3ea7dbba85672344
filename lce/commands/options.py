"""Options that several commands share: the study, cell selection, and execution settings."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

import typer

from lce_core.execution import Execution

Study = Annotated[str, typer.Argument(help="A shipped study's name, or a study file.")]
Select = Annotated[str, typer.Option(help="Only these cells: axis=value,...")]
RetryFailed = Annotated[bool, typer.Option(help="Try permanent failures again.")]
Budget = Annotated[
    str,
    typer.Option(help="8gpuh, 100cpuh or 2h (on the clock): whole blocks over all methods."),
]
AcceptPluginChange = Annotated[
    bool,
    typer.Option(
        "--accept-plugin-change",
        help="Keep results of your own plug-ins whose code changed and VERSION did not.",
    ),
]

OfExecution = Literal[
    "slots",
    "training_slots",
    "evaluation_slots",
    "engine",
    "device",
    "processes",
    "micro_batch_tokens",
    "model_folder",
    "data_folder",
    "plugins",
    "execution",
]

_FORMS: dict[OfExecution, Any] = {
    "slots": Annotated[int | None, typer.Option(help="Steps at a time: one per GPU or CPU core.")],
    "training_slots": Annotated[
        int | None, typer.Option(help="Training runs at a time, if not as many as --slots.")
    ],
    "evaluation_slots": Annotated[
        int | None, typer.Option(help="Other steps at a time, if not as many as --slots.")
    ],
    "engine": Annotated[
        str | None, typer.Option(help="Where workers are: local, ray or ray:HOST:PORT.")
    ],
    "device": Annotated[str | None, typer.Option(help="auto, cpu or cuda.")],
    "processes": Annotated[int | None, typer.Option(help="Processes of one training run.")],
    "micro_batch_tokens": Annotated[
        int | None, typer.Option(help="Most tokens in one forward pass.")
    ],
    "model_folder": Annotated[
        list[str], typer.Option("--model-folder", help="NAME=FOLDER with a base model's weights.")
    ],
    "data_folder": Annotated[
        list[str],
        typer.Option(
            "--data-folder", help="NAME=FOLDER with a data set, or NAME=hub:OWNER/NAME@COMMIT."
        ),
    ],
    "plugins": Annotated[
        list[Path],
        typer.Option("--plugins", help="Folder with methods/, benchmarks/, ... of your own."),
    ],
    "execution": Annotated[
        Path | None, typer.Option("--execution", help="YAML file with keys of Execution.")
    ],
}
_SEVERAL = ("model_folder", "data_folder", "plugins")

FOLDERS: tuple[OfExecution, ...] = ("model_folder", "data_folder", "plugins")
EVERY: tuple[OfExecution, ...] = tuple(_FORMS)


def with_execution(*names: OfExecution) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that adds these options to a command, after its own.

    The decorated command receives the resulting Execution as its argument `how`, if it has one.
    Without `how` the options still take effect: `--plugins` registers plug-ins, for example.
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
                default=[] if name in _SEVERAL else None,
                annotation=_FORMS[name],
            )
            for name in names
        ]
        parameters = [*own, *added]

        @functools.wraps(command)
        def asked(**given: Any) -> None:
            how = _execution({name: given.pop(name) for name in names})
            command(**given, **({"how": how} if "how" in hints else {}))

        # Typer reads both the signature and the annotations.
        asked.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        asked.__annotations__ = {one.name: one.annotation for one in parameters}
        return asked

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
