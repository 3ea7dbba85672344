"""Output of the `lce rope` commands: sentences, tables of at most 80 columns, and JSON."""

import math
from dataclasses import asdict
from typing import Any

import numpy as np
from rich.table import Table

from flows.terminal import Terminal, plain_table
from lce.rope.inspection import Inspection
from lce_core.rope import Frequencies
from lce_core.rope import bound as bounds
from lce_core.rope.inspection import Head

LEGEND = """\
Wavelengths in tokens. State: unchanged, interpolated (slower rotation),
accelerated (faster), no rotation (frequency 0, infinite wavelength), or
extrapolated (the request reaches angles beyond those of the trained context)."""
STARRED = "* wavelength above L_theta: less than one rotation within the bound."


def bound(base: float, inv_freq: Frequencies, length: int | None) -> str:
    """Return the output of `lce rope bound`; a `length` of None exceeds `SEARCHED`."""
    dim = 2 * len(inv_freq)
    head = f"base {base:g}, {dim} rotated elements"
    meaning = (
        f"B_m = sum of cos(m * base^(-2i/{dim})) over the pairs i = 0 to {dim // 2 - 1}:\n"
        "how much attention favours a similar token over a random one m tokens away."
    )
    if length is None:
        found = (
            f"L_theta above {bounds.SEARCHED:,} tokens\n{meaning}\nB_m is >= 0 up to that distance."
        )
    else:
        first = float(bounds.discrimination(inv_freq, np.array([length + 1]))[0])
        found = (
            f"L_theta = {length:,} tokens\n{meaning}\n"
            f"B_m is >= 0 from m = 0 to {length:,}, and {first:.3g} at {length + 1:,}."
        )
    return f"{head}: {found}\nSource: arXiv:2405.14591, theorem 1 and equation 17."


def smallest_base(length: int, dim: int, digits: int, found: bounds.SmallestBase) -> str:
    own = bounds.bounded_length(bounds.frequencies_of(found.base, dim))
    reach = f"above {bounds.SEARCHED:,}" if own is None else f"{own:,}"
    steps = f"k = 1 to {'9' if digits == 1 else '9.' + '9' * (digits - 1)}"
    above = "Smaller bases of the grid fail; "
    if found.every_from is None:
        above += "for bases above the grid nothing is proven."
    elif found.every_from > found.base:
        above += f"some larger ones too; every base of the grid >= {found.every_from:g} works."
    else:
        above += "every larger one works, and every base above the grid."
    return (
        f"{length:,} tokens, {dim} rotated elements: base {found.base:g}\n"
        f"It is the smallest base of the grid k * 10^e, {steps} in {digits} digits,"
        f" e = 0 to {bounds.EXPONENTS[-1]},\n"
        f"with B_m >= 0 at every distance m from 0 to {length:,}; its own L_theta is {reach}.\n"
        f"{above}\n"
        "A finer grid can find a smaller base, because working bases have gaps.\n"
        "Source: arXiv:2405.14591, equation 18.\n"
        "Bounds for a pair of frequency 1 / base, a little slower than the slowest one\n"
        f"(arXiv:2602.10959): a base above {length * bounds.ALIASING:,.0f}, so that it turns less"
        f" than once; below\n{bounds.RESOLVED:.3g}, so that float32 tells successive tokens apart."
        f"\nFMRoPE (openreview PR1PPxvG9Q) takes the training length as base: {length:,}.\n"
        "Text whose dependencies reach W tokens uses frequencies in proportion to 1 / W\n"
        "(arXiv:2607.07678, without a factor); the slowest pair has about 1 / base."
    )


def show(found: Inspection, head: Head | None) -> None:
    console = Terminal(highlight=False, soft_wrap=True)
    lengths, geometry = found.lengths, found.geometry
    console.print(
        f"{found.method.plugin_name} on {found.model}: {geometry.num_pairs} of"
        f" {geometry.head_dim // 2} pairs rotate, base {geometry.theta:g}\n"
        f"{lengths.trained:,} tokens trained, target {lengths.target:,},"
        f" request {lengths.request:,}"
    )
    for note in found.notes:
        Terminal(highlight=False, width=80).print(note)
    console.print()
    if found.changes_attention_alone:
        console.print(_bound_line("base model", found.base, lengths.request))
        console.print("This holds for real distances, not for the positions inside this attention.")
        return
    console.print(_heads(found) if head is None else _pairs(head, found))
    console.print(f"\n{LEGEND}")
    console.print(f"{'To show one head: --head NUMBER.' if head is None else STARRED}\n")
    shown = found.heads if head is None else (head,)
    console.print(_bound_line("base model", found.base, lengths.request))
    if len(shown) == 1:
        name = found.method.plugin_name
        label = name if shown[0].head is None else f"{name}, head {shown[0].head}"
        console.print(_bound_line(label, shown[0], lengths.request))
    console.print("B_m and L_theta: see `lce rope bound --help`; arXiv:2405.14591, equation 17.")


def as_json(found: Inspection, head: Head | None) -> dict[str, Any]:
    """Return the inspection as JSON, with None for the infinite wavelength of an unrotated pair."""
    heads = found.heads if head is None else (head,)

    def finite(items: list[tuple[str, Any]]) -> dict[str, Any]:
        return {key: None if value == math.inf else value for key, value in items}

    return {
        "method": found.method.identity(),
        "model": found.model,
        **{f"{key}_tokens": value for key, value in asdict(found.lengths).items()},
        "attention_factor": found.table.attention_factor,
        "changes_frequencies": found.changes_frequencies,
        "attention": None if found.scheme is None else type(found.scheme).__name__,
        "notes": found.notes,
        "base_model": {"bound": found.base.bound, "num_negative": found.base.num_negative},
        "heads": []
        if found.changes_attention_alone
        else [asdict(one, dict_factory=finite) for one in heads],
    }


def _pairs(head: Head, found: Inspection) -> Table:
    lengths = found.lengths
    table = plain_table((), (
        "pair", "wavelength\nbefore", "\nafter", "\nratio",
        f"turns in\n{lengths.trained:,}", f"turns in\n{lengths.request:,}",
    ))  # fmt: skip
    table.add_column("state")
    for pair in head.pairs:
        table.add_row(
            str(pair.pair),
            _short(pair.wavelength_before, 1),
            _short(pair.wavelength_after, 1),
            _short(pair.wavelength_after / pair.wavelength_before, 3),
            _turns(pair.turns_trained),
            _turns(pair.turns_request),
            pair.state + (" *" if pair.beyond_bound else ""),
        )
    return table


def _heads(found: Inspection) -> Table:
    table = plain_table((), (
        "head", "slowest\nwavelength", "ratio to\nbefore", "\nL_theta", "\nB_m < 0",
        "un-\nchanged", "inter-\npolated", "accel-\nerated", "no ro-\ntation", "extra-\npolated",
    ))  # fmt: skip
    for head in found.heads:
        last = head.pairs[-1]
        table.add_row(
            str(head.head),
            _short(last.wavelength_after, 0),
            _short(last.wavelength_after / last.wavelength_before, 2),
            _tokens(head.bound),
            f"{head.num_negative:,}",
            *(str(head.num(state)) for state in ("unchanged", "interpolated", "accelerated")),
            *(str(head.num(state)) for state in ("no rotation", "extrapolated")),
        )
    return table


def _bound_line(name: str, head: Head, request: int) -> str:
    return (
        f"{name}: L_theta {_tokens(head.bound)}; B_m < 0 at {head.num_negative:,} of"
        f" {request + 1:,} distances"
    )


def _short(value: float, digits: int) -> str:
    # Ten integer digits fit the table; longer numbers are rounded to three significant digits.
    return f"{value:,.{digits}f}" if value < 1e10 else f"{value:.3g}"


def _tokens(bound: int | None) -> str:
    return f"> {bounds.SEARCHED:,}" if bound is None else f"{bound:,}"


def _turns(turns: float) -> str:
    return f"{turns:,.1f}" if turns >= 10 else f"{turns:.3f}"
