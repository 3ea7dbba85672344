"""Write a study's results as a folder for a code repository: Markdown, pictures and a CSV file.

README.md states the sha256 of scores.csv, which contains every metric of every cell unrounded.
Untrusted text is escaped, so that it cannot become a link, image, HTML or table.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from catalog.formatting import format_rows
from catalog.queries import run_query
from dashboards.charts.heat_map import heat_map_svg
from dashboards.charts.marks import picture
from dashboards.claims import Expectation
from dashboards.claims.summary import Summary, summaries
from dashboards.claims.wording import EXPLAINED, OUTCOMES, registered
from dashboards.contents import Contents, Row, grouped, opened, read_contents
from dashboards.families import LEGEND, MARKS, Variant, base_context, comparable, hole, scores_of
from dashboards.figure import Table, cell_of
from dashboards.report import unwritable
from dashboards.sections import comparisons, curves, header, heat_maps, tasks
from lce_core import formats
from lce_core.study.variants import variant_label
from lce_core.terminal import visible

PAGE, SCORES = "README.md", "scores.csv"
_BRACKETS = (
    "Tables have arithmetic means over seeds; the best of a column is bold. Brackets: lowest and"
    " highest seed, or with one seed the 95 % interval over prompts or documents."
)
_SCORES = (
    "SELECT base_model, method, frozen, seed, benchmark, task, eval_length, metric, value, ci_low,"
    " ci_high, num_samples, profile, train_length, cell FROM scores WHERE study = '{study}'"
    " ORDER BY ALL"
)
_ESCAPED = re.compile(
    r"[\\`*~$|]"  # code, emphasis, strike-through, GitHub's mathematics, table columns
    r"|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])"  # emphasis; never within a name
)
_BRACKET = re.compile(r"(\[[-+.,e\d ]*\d(?: to )?[-+.,e\d ]*\](?![(\[:]))|[][]")
"""Matches an interval such as [0.1, 0.2] or [0.1 to 0.2] as group 1, or else a single bracket.

Only single brackets are escaped. An interval needs no escape: the pattern excludes intervals that
could start a link.
"""
_ENTITIES = (
    (re.compile(r"&(?=#?\w+;)"), "&amp;"),
    (re.compile(r"<(?=[A-Za-z/!?])"), "&lt;"),
    # GitHub turns these into links automatically.
    (re.compile("://"), ":&#47;&#47;"),
    (re.compile(r"(?i)\bwww\."), "www&#46;"),
    (re.compile("@"), "&#64;"),
)
_BLOCK = re.compile(r"^([#>+=-]|:(?=-))|^(\d+)([.)])")


def write_markdown(catalog: Path, study: str, out: Path) -> Path:
    contents = read_contents(catalog, study)
    with opened(catalog) as connection:
        found = summaries(connection, study)
    scores = run_query(catalog, _SCORES.format(study=study))
    try:
        out.mkdir(parents=True, exist_ok=True)
        (out / SCORES).write_text(format_rows(*scores, "csv") + "\n", encoding="utf-8")
        page = "\n".join(_page(contents, found, out)) + "\n"
        (out / PAGE).write_text(page, encoding="utf-8")
    except OSError as error:
        raise unwritable(out, error, "folder") from error
    return out / PAGE


def _page(contents: Contents, found: Sequence[Summary], out: Path) -> Iterator[str]:
    (run,) = contents.run
    seeds = f"{run['seeds']} seed{'s'[: run['seeds'] > 1]}"
    yield f"# {contents.study}\n"
    if hypothesis := contents.studies[0]["hypothesis"]:
        yield f"Hypothesis: {plain(hypothesis)}\n"
    if when := registered(contents.registrations, contents.settled):
        yield f"{when}\n"
    yield (
        f"{run['done']} of {run['cells']} cells are done, {seeds}, profile"
        f" {plain(run['profiles'] or '-')}. Target context:"
        f" {contents.studies[0]['target_context']:,} tokens.\n"
    )
    for summary in found:
        yield from _summary(contents.of(summary.base_model), summary, out)
    for study in contents.studies:
        base = study["base_model"]
        context = base_context(study)
        yield f"\n## {plain(base)}{f', {plain(context)}' if context else ''}\n"
        expected = next((one.expected for one in found if one.base_model == base), [])
        yield from _expectations(expected)
        of_it = contents.of(base)
        if compared := of_it.short_context:
            yield f"\n### {comparisons.SHORT_CONTEXT}\n\n{comparisons.short_caption(compared)}\n"
            yield from _printed(comparisons.short_table(compared, {}))
        if of_it.controls:
            yield f"\n### Controls\n\n{tasks.CONTROLS}\n"
            yield from _printed(tasks.control_table(of_it))
        yield from _base_model(of_it, out)
    yield from _gaps(contents)
    yield from _origin(contents, out)


def _summary(contents: Contents, one: Summary, out: Path) -> Iterator[str]:
    parts = {
        "Expected and found": (sentence for sentence, _ in one.outcomes()),
        "Which method": one.recommended(),
        "What to distrust": one.distrust(),
    }
    for title, sentences in parts.items():
        if shown := [f"- {plain(text)}" for text in sentences]:
            yield from (f"\n## {title}, {plain(one.base_model)}\n", *shown)
    yield f"\n{plain(one.total_cost())}\n"
    if picture := header.dot_plot(contents, one):
        yield f"![{header.PICTURE}]({_drawn(out, [picture], one.base_model, 'methods')})"


def _expectations(expected: Sequence[Expectation]) -> Iterator[str]:
    if not expected:
        return
    yield "\n### Expectations\n"
    for entry in expected:
        yield f"- {plain(entry.line)}"
        yield from (f"    - **{one.outcome}**: {plain(one.finding)}" for one in entry.comparisons)
    yield f"\n{OUTCOMES}\n\n{EXPLAINED} All pairs: `lce claims`.\n"


def _printed(table: Table) -> Iterator[str]:
    rows = [
        (one.label if isinstance(one, Variant) else str(cell_of(one).shown) for one in row)
        for row in table.rows
    ]
    yield from _lines(list(map(str, table.columns)), rows)
    yield ""


def _base_model(contents: Contents, out: Path) -> Iterator[str]:
    name, scores = contents.studies[0]["base_model"], contents.scores
    benchmarks = comparable(contents.benchmarks, scores)
    if any(row["value"] is not None for row in benchmarks):
        shown = heat_map_svg(heat_maps.heat_map(contents, "scores", benchmarks))
        file = _drawn(out, [shown], name)
        yield f"![scores of each method at each length]({file})"
    columns = ("benchmark", "task", "eval_length")
    places = grouped(contents.curves, *columns)
    differences = grouped(contents.nll_differences, *columns)
    for place in sorted(places, key=lambda one: (*one[:2], -one[2])):
        _, task, length = place
        drawn = curves.loss_curves(contents, places[place])
        if charts := curves.family_panels(contents, *drawn):
            file = _drawn(out, charts, name, *place)
            what = f"negative log-likelihood by position, {plain(task)}, {length:,} tokens"
            yield f"\n![{what}]({file})"
        yield from _against_base(differences.get(place, []))
    for length, rows in curves.pictured(contents.shots):
        charts = curves.family_panels(contents, *curves.shot_curves(length, rows))
        file = _drawn(out, charts, name, "many_shot", length)
        yield f"\n![many-shot accuracy by examples, in {length:,} tokens]({file})"
    if scores:
        yield f"\n{_BRACKETS}"
    if contents.differences:
        yield f"\n{LEGEND}"
    for rows in grouped(scores, "benchmark", "task").values():
        yield from _table(contents, rows)


def _drawn(out: Path, charts: Sequence[str], *parts: object) -> str:
    file = f"{file_name(*parts)}.svg"
    (out / file).write_text(picture(charts), encoding="utf-8")
    return file


def _against_base(rows: Sequence[Row]) -> Iterator[str]:
    found = grouped(rows, Variant.of)
    if not found:
        return
    length, bands = rows[0]["eval_length"], next(iter(found.values()))
    title = f"{plain(rows[0]['benchmark'])}, {plain(rows[0]['task'])}, {length:,} tokens"
    yield f"\n### {title}, minus the base model, by position: nats per token, lower is better\n"
    yield from _lines(
        ("method", *map(curves.band_label, bands)),
        ((one.label, *map(curves.difference_text, mine)) for one, mine in found.items()),
    )


def _table(contents: Contents, rows: Sequence[Row]) -> Iterator[str]:
    first, scores = rows[0], scores_of(contents, rows)
    lengths = sorted({row["eval_length"] for row in rows})
    title = f"{plain(first['benchmark'])}, {plain(first['task'])}"
    known = next((row for row in rows if row["metric"]), None)  # None if not done
    if known:
        better = "higher" if known["higher_is_better"] else "lower"
        title += f": {plain(known['metric'])}, {better} is better"
    yield f"\n### {title}\n"
    yield from _lines(
        ("method", *(f"{length:,}" for length in lengths)),
        [
            (one.label, *(_cell(scores.get((one, first["task"], at))) for at in lengths))
            for one in dict.fromkeys(map(Variant.of, rows))
        ],
    )


def _lines(columns: Sequence[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    yield f"| {' | '.join(columns)} |"
    yield f"|---|{'---:|' * (len(columns) - 1)}"
    for name, *cells in rows:
        yield f"| {plain(name)} | {' | '.join(cells)} |"


def _cell(score: Row | None) -> str:
    if score is None:
        return ""
    if score["value"] is None:
        return hole(score)
    ends = ("ci_low", "ci_high") if score["num_planned"] == 1 else ("lowest", "highest")
    low, high = (score[end] for end in ends)
    text = formats.score(score["value"])
    text = f"**{text}**" if score["is_best"] else text
    if score["verdict"]:
        text = f"{text} {MARKS[score['verdict']]}"
    return text if low is None else f"{text} [{formats.score(low)}, {formats.score(high)}]"


def _gaps(contents: Contents) -> Iterator[str]:
    if contents.missing:
        yield "\n## Cells without a result\n"
        yield "| cells | what | lengths | why |\n|---:|---|---|---|"
    for row in contents.missing:
        what = f"{row['base_model']} {variant_label(row['method'], row['frozen'])}"
        lengths = ", ".join(f"{length:,}" for length in row["eval_lengths"])
        why = plain(f"{row['status']}: {row['reason'] or ''}")
        which = plain(f"{what}, {row['benchmarks']}")
        yield f"| {row['cells']} | {which} | {lengths} | {why} |"


def _origin(contents: Contents, out: Path) -> Iterator[str]:
    yield "\n## Where the numbers come from\n"
    for row in contents.environments:
        dirty = " with uncommitted changes" if row["git_dirty"] else ""
        commit = f"commit `{row['git_commit'][:12]}`{dirty}" if row["git_commit"] else "no checkout"
        versions = json.loads(row["libraries"])
        known = [key for key in ("torch", "transformers") if key in versions]
        software = ", ".join(f"{key} {plain(str(versions[key]))}" for key in known)
        yield (
            f"- {row['num_artifacts']} cells: {commit}; {plain(row['hardware'])};"
            f" Python {plain(row['python'])}, {software};"
            f" {row['first_used']:%Y-%m-%d %H:%M} to {row['last_used']:%Y-%m-%d %H:%M} UTC"
        )
    digest = hashlib.sha256((out / SCORES).read_bytes()).hexdigest()
    yield f"- [{SCORES}]({SCORES}), every metric of every cell: sha256 `{digest}`"


def plain(text: str) -> str:
    """Return one line of Markdown that shows the text literally, also at the start of a line.

    Control characters, and characters that change the direction of text, become visible escapes.
    """
    line = visible(" ".join(text.split()))
    # At the start of a line, a number begins an ordered list, a dash a list, a # a heading.
    found = _BLOCK.match(line)
    start = "" if not found else f"\\{found[1]}" if found[1] else f"{found[2]}\\{found[3]}"
    line = _ESCAPED.sub(r"\\\g<0>", line[found.end() :] if found else line)
    line = _BRACKET.sub(lambda one: one[0] if one[1] else f"\\{one[0]}", line)
    for pattern, entity in _ENTITIES:
        line = pattern.sub(entity, line)
    return start + line


def file_name(*parts: object) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]", "_", "-".join(map(str, parts)))
