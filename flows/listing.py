"""`lce methods`, `lce benchmarks`, `lce models`: what there is, read from the plug-ins.

docs/methods.md is the output of `lce methods --markdown`; a test keeps it so.
"""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from lce_core.benchmarks import BENCHMARKS
from lce_core.methods import METHODS, Method
from lce_core.models import MODELS

_METHODS_HEAD = """# Methods

Written by `lce methods --markdown > docs/methods.md` from the files in `lce_core/methods`; change
those. A name is what a study gives as `name`, and the label of the papers' own rows in the catalog;
a parameter is a key beside it. Contexts and lengths are in tokens.
"""


def methods() -> None:
    """Prints every method with family, attention, training and source."""
    table = _table("method", "family", "attention", "trains", "source")
    for name in METHODS.names():
        method = METHODS.load(name)
        table.add_row(name, *_properties(method), method.source.paper)
    Console().print(table)


def methods_markdown() -> str:
    """The document about all methods: a table, then a section for each."""
    loaded = {name: METHODS.load(name) for name in METHODS.names()}
    rows = [
        f"| [`{name}`](#{name}) | {' | '.join(_properties(method))} | {method.source.paper} |"
        for name, method in loaded.items()
    ]
    table = ["| method | family | attention | trains | paper |", "|---|---|---|---|---|", *rows]
    sections = [_section(name, method) for name, method in loaded.items()]
    return "\n".join([_METHODS_HEAD, *table, "", "\n\n".join(sections), ""])


def _section(name: str, method: type[Method]) -> str:
    family, attention, trains = _properties(method)
    source = method.source
    lines = [
        f"## `{name}`",
        "",
        method.summary,
        "",
        f"- family: {family}; attention: {attention}; trains: {trains}",
        f"- source: {source.paper}, {source.place}",
        f"- reference: {source.reference}",
    ]
    if source.differs:
        lines.append(f"- differs: {source.differs}")
    if not method.model_fields:
        return "\n".join([*lines, "- parameters: none"])
    lines += ["", "| parameter | default | meaning |", "|---|---|---|"]
    for key, field in method.model_fields.items():
        default = "required" if field.is_required() else str(field.default).lower()
        meaning = " ".join((field.description or "").split()).replace("|", r"\|")
        lines.append(f"| `{key}` | {default} | {meaning} |")
    return "\n".join(lines)


def _properties(method: type[Method]) -> tuple[str, str, str]:
    """Family, kind of attention, and whether it trains."""
    attention = "exact" if method.exact_attention else "approximate"
    trains = {"none": "no", "optional": "yes", "required": "always"}[method.training]
    return method.family, attention, trains


def benchmarks() -> None:
    """Prints every benchmark with unit, seeding and source."""
    table = _table("benchmark", "unit", "metric", "samples", "source")
    for name in BENCHMARKS.names():
        benchmark = BENCHMARKS.load(name)
        samples = "by seed" if benchmark.seeded else "fixed"
        paper = benchmark.source.paper
        table.add_row(name, benchmark.unit, benchmark.default_metric, samples, paper)
    Console().print(table)


def models() -> None:
    """Prints every base model with context, RoPE base and where its weights come from."""
    table = _table("base model", "context", "theta", "rotary", "weights")
    for name in MODELS.names():
        model = MODELS.load(name)
        geometry = model.geometry
        weights = f"{model.repo}@{(model.revision or '')[:7]}" if model.repo else "trained here"
        rotary = f"{geometry.rotary_dim} of {geometry.head_dim}"
        table.add_row(name, str(geometry.trained_context), f"{geometry.theta:g}", rotary, weights)
    Console().print(table)


def _table(*columns: str) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in columns:
        table.add_column(column)
    return table
