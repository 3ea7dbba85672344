"""Sections: scores by task and length, controls, and a few right and wrong answers."""

from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter

from markupsafe import Markup

from dashboards.contents import Contents, Row, grouped, select
from dashboards.families import LEGEND, Variant, duplicates, hole, ordered, scores_of
from dashboards.figure import Cell, Table, Value, code, link, paragraph, verdict_mark
from lce_core import formats
from lce_core.terminal import visible

Column = tuple[str, int]
MOST_COLUMNS = 10
CONTROLS = (
    "The same prompts without their context, and with only the answer's neighbourhood. A score near"
    " the first does not come from the context. The distance from the second is what the length"
    " costs. Means over the seeds of done cells."
)
ANSWERS = "Sample answers"
MOST_CHARACTERS = 300
_COUNTED = "n: prompts or windows of text behind the score of each seed."
_ANSWERS_LEGEND = paragraph(
    "At most five answers per benchmark: wrong ones and right ones alternate, from different"
    " methods if possible. The last column has the end of the prompt, and the command that prints"
    " the whole prompt."
)
_ANSWER_HEADS = ("method", "task", "score", "answer", "reference", "prompt")


def by_task(contents: Contents, *, on_paper: bool = False) -> Markup:
    """Return a collapsed table for each benchmark; on paper, tables of `MOST_COLUMNS` columns."""
    tables = []
    for benchmark, rows in grouped(contents.scores, "benchmark").items():
        if any(row["value_of_done"] is not None for row in rows):
            columns = _columns(rows)
            tables += [
                _table(contents, benchmark, rows, shown, is_open=on_paper)
                for shown in (_sheets(columns) if on_paper else [columns])
            ]
    if not tables:
        return Markup()
    legend = paragraph(f"{f'{LEGEND} ' if contents.differences else ''}{_COUNTED}")
    sheets = Markup('<div class="sheets">{}</div>' if on_paper else "{}")
    return legend + sheets.format(Markup("").join(tables))


def controls(contents: Contents) -> Markup:
    if not contents.controls:
        return Markup()
    return paragraph(CONTROLS) + control_table(contents).saved("controls")


def control_table(contents: Contents) -> Table:
    order = ordered(contents)
    rows = [
        (
            Variant.of(row),
            *(row[name].replace("_", " ") for name in ("benchmark", "task")),
            *(row[name] for name in ("eval_length", "score", "no_context", "local_context")),
        )
        for row in sorted(contents.controls, key=lambda row: order.index(Variant.of(row)))
    ]
    heads = ("method", "benchmark", "task", "length", "score", "without context", "answer nearby")
    return Table(heads, rows, duplicates(contents))


def _columns(rows: list[Row]) -> list[Column]:
    tasks = list(dict.fromkeys(row["task"] for row in rows))
    return sorted(
        dict.fromkeys((row["task"], row["eval_length"]) for row in rows),
        key=lambda column: (tasks.index(column[0]), column[1]),
    )


def _sheets(columns: Sequence[Column]) -> Iterator[list[Column]]:
    sheet: list[Column] = []
    for mine in grouped(columns, itemgetter(0)).values():
        if sheet and len(sheet) + len(mine) > MOST_COLUMNS:
            yield sheet
            sheet = []
        sheet += mine
        while len(sheet) > MOST_COLUMNS:
            yield sheet[:MOST_COLUMNS]
            sheet = sheet[MOST_COLUMNS:]
    if sheet:
        yield sheet


def _table(
    contents: Contents, benchmark: str, rows: list[Row], columns: Sequence[Column], *, is_open: bool
) -> Markup:
    counts = {
        (row["task"], row["eval_length"]): row
        for row in select(contents.sample_counts, benchmark=benchmark)
    }
    scores = scores_of(contents, rows)
    tasks = [task for task, _ in columns]
    groups = {task.replace("_", " "): tasks.count(task) for task in dict.fromkeys(tasks)}
    table = Table(
        ("method", *(_head(length, counts.get((task, length))) for task, length in columns)),
        [
            (one, *(_cell(scores.get((one, *column))) for column in columns))
            for one in ordered(contents)
            if any((one, *column) in scores for column in columns)
        ],
        duplicates(contents),
        "scores",
        [*groups.items()],
    )
    title = benchmark.replace("_", " ")
    known = next(row for row in rows if row["metric"] is not None)
    better = "higher" if known["higher_is_better"] else "lower"
    number = f"{len(groups)} task{'s'[: len(groups) > 1]}"
    about = f": {known['metric']}, {better} is better; {number}"
    return table.folded(f"{title} by task", title, about, is_open=is_open)


def _head(length: int, counted: Row | None) -> Cell:
    shown = Markup(f"{length:,}")
    if counted is not None:
        most = f" to {counted['most']:,}" * (counted["fewest"] < counted["most"])
        shown += Markup("<br><small>n = {}</small>").format(f"{counted['fewest']:,}{most}")
    return Cell(shown, {"class": "number", "data-csv": length})


def _cell(score: Row | None) -> Value:
    if score is None:
        return None
    facts = {"data-task": score["task"], "data-length": score["eval_length"]}
    if score["value"] is None:
        part = score["value_of_done"]
        mean = "" if part is None else f": ({formats.score(part)})"
        gone = {"class": "number gone", **facts, "data-tooltip": score["missing"] or ""}
        return Cell(f"{hole(score)}{mean}", gone)
    best = Markup("<strong>{}</strong>" if score["is_best"] else "{}")
    shown = best.format(formats.score(score["value"]))
    shown += verdict_mark(score["verdict"], " than the base model")
    return Cell(shown, {"class": "number", **facts, "data-value": repr(score["value"])})


def sample_answers(contents: Contents) -> Markup:
    shown = Markup()
    for benchmark, rows in grouped(contents.sample_answers, "benchmark").items():
        title = f"{benchmark.replace('_', ' ')}, {rows[0]['eval_length']:,} tokens"
        heading = Markup('<h3 id="{}">{}</h3>').format(anchor_of(contents, benchmark), title)
        shown += heading + Table(_ANSWER_HEADS, list(map(_answer, rows)), kind="samples").html()
    return shown and _ANSWERS_LEGEND + shown


def anchor_of(contents: Contents, benchmark: str) -> str:
    return f"answers-{contents.studies[0]['base_model']}-{benchmark}"


def links(contents: Contents, benchmarks: Iterable[str]) -> Markup:
    known = {row["benchmark"] for row in contents.sample_answers}
    found = Markup(", ").join(
        link(f"#{anchor_of(contents, one)}", one.replace("_", " "))
        for one in benchmarks
        if one in known
    )
    return found and Markup(" {}: {}.").format(ANSWERS, found)


def _answer(row: Row) -> list[Value]:
    prompt = code(f"lce prompt {row['cell']} {row['sample']}")
    if end := row["prompt_end"]:
        prompt = code(visible(f"...{end}")) + Markup("<br>") + prompt
    return [
        Variant.of(row),
        row["task"].replace("_", " "),
        Cell(f"{row['score']:.3g}", {"class": "number", "data-value": repr(row["score"])}),
        _cut(row["prediction"]),
        _cut(row["reference"] or ""),
        prompt,
    ]


def _cut(text: str) -> Markup:
    shown = text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}..."
    return code(visible(shown))
