"""`lce rope`: bounds of RoPE bases and frequencies of methods, without loading a model."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from flows.terminal import say
from lce.commands.options import with_execution

rope = typer.Typer(
    help="Up to which distance RoPE frequencies work, and how a method changes them.",
    no_args_is_help=True,
)

AsJson = Annotated[bool, typer.Option("--json", help="Print every number as JSON.")]
Dim = Annotated[int, typer.Option(help="Number of rotated elements of an attention head.")]


@rope.command()
def bound(
    base: Annotated[float, typer.Option(help="RoPE base.")],
    dim: Dim = 128,
    as_json: AsJson = False,
) -> None:
    """Print L_theta, the distance in tokens up to which a RoPE base favours similar tokens."""
    from lce.rope import texts
    from lce_core.rope import bound as bounds

    inv_freq = bounds.frequencies_of(base, dim)
    length = bounds.bounded_length(inv_freq)
    if not as_json:
        say(texts.bound(base, inv_freq, length))
        return
    found = {"base": base, "dim": dim, "length": length, "searched": bounds.SEARCHED}
    say(json.dumps(found, indent=1))


@rope.command()
def base(
    length: Annotated[int, typer.Option(help="Context length in tokens.")],
    dim: Dim = 128,
    digits: Annotated[
        int, typer.Option(min=1, max=3, help="Significant digits of the tried bases.")
    ] = 2,
    as_json: AsJson = False,
) -> None:
    """Find the smallest RoPE base that favours similar tokens at every distance up to a length."""
    from lce.rope import texts
    from lce_core.rope import bound as bounds

    found = bounds.smallest_base(length, dim, digits)
    if not as_json:
        say(texts.smallest_base(length, dim, digits, found))
        return
    given = {"length": length, "dim": dim, "digits": digits}
    limits = {"above": length * bounds.ALIASING, "below": bounds.RESOLVED}
    say(json.dumps({**given, **asdict(found), **limits}, indent=1))


@rope.command()
@with_execution("plugins")
def inspect(
    method: Annotated[str, typer.Argument(help="A method of `lce methods`.")],
    model: Annotated[str, typer.Option(help="A base model of `lce models`.")] = "llama2_7b",
    target: Annotated[int, typer.Option(help="Target context in tokens.")] = 32768,
    request: Annotated[
        int | None,
        typer.Option(help="Request length in tokens. Default: the target.", show_default=False),
    ] = None,
    parameter: Annotated[
        list[str], typer.Option("--set", help="Parameter of the method, as KEY=VALUE.")
    ] = [],  # noqa: B006 - typer wants the literal default
    head: Annotated[
        int | None, typer.Option(help="Number of the head to show, where heads differ.")
    ] = None,
    as_json: AsJson = False,
    out: Annotated[
        Path | None, typer.Option(help="Draw a plot into this SVG file.", dir_okay=False)
    ] = None,
) -> None:
    """Show how a method changes each rotated pair: wavelengths, rotations, and the bound."""
    from lce.rope import picture, texts
    from lce.rope.inspection import inspect_method

    found = inspect_method(method, parameter, model, target, request)
    shown = found.head(head)
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(picture.draw(found), encoding="utf-8")
    if as_json:
        say(json.dumps(texts.as_json(found, shown), indent=1))
    else:
        texts.show(found, shown)
        if out is not None:
            say(str(out))
