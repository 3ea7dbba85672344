"""Documents say what the code says: commands, keys, links, and examples that work."""

import csv
import hashlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

from catalog.queries import run_query
from flows.request import compile_request
from flows.settings import shipped_studies, study_path
from lce.cli import app
from lce.plugins.authoring import KINDS, new_plugin
from lce_core.benchmarks import BENCHMARKS
from lce_core.contracts import benchmark_cases, benchmarks
from lce_core.corpora import CORPORA
from lce_core.errors import SpecError, UnavailableError
from lce_core.execution import Execution
from lce_core.methods import METHODS
from lce_core.recipe import Evaluation, Training, Upsampling
from lce_core.registry import MARK
from lce_core.study.expectation import Expectation
from lce_core.study.plugin_folders import add_plugin_folders
from lce_core.study.spec import BenchmarkEntry, MethodEntry, StudySpec
from lce_core.study.study_file import parse_study
from lce_core.study.tuning import Tune
from tests.support.accessibility import faults
from tests.support.cells import benchmark, request
from tests.support.plugin_copies import plugins_removed_after
from tests.support.repository import ROOT
from tests.support.studies import lce

DOCUMENTS = {
    path: path.read_text(encoding="utf-8")
    for path in sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
}


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def commands() -> dict[str, Any]:
    # Typer carries its own copy of click, so the group has no class to name here.
    group: Any = typer.main.get_command(app)
    return dict(group.commands)


def examples(name: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text(name), flags=re.MULTILINE | re.DOTALL)


def named(pattern: str) -> set[str]:
    """What the pattern's group finds in all documents."""
    return {found for one in DOCUMENTS.values() for found in re.findall(pattern, one, re.MULTILINE)}


def test_documents_name_the_commands_and_studies_that_exist():
    assert named(r"(?:`|^|bin/)lce ([a-z]+)\b") <= set(commands())
    assert [name for name in commands() if f"`lce {name}" not in text("docs/commands.md")] == []
    studies = named(r"\blce (?:run|plan|status|report) ([a-z][a-z0-9-]+)(?![\w./-])")
    assert studies
    assert studies <= set(shipped_studies())


def test_every_command_option_and_key_has_a_meaning():
    silent = [name for name, command in commands().items() if not command.help]
    for name, command in commands().items():
        options = [option for option in command.params if option.param_type_name == "option"]
        silent += [f"{name} {option.name}" for option in options if not option.help]
    settings = (Training, Tune, Upsampling, Evaluation, Execution)
    for section in (StudySpec, MethodEntry, BenchmarkEntry, Expectation, *settings):
        keys = section.model_fields.items()
        silent += [f"{section.__name__}.{key}" for key, field in keys if not field.description]
    assert silent == []


def test_documents_name_only_files_and_modules_that_exist():
    folders = "lce_core|catalog|tasks|flows|dashboards|lce|tests|perf|docs"
    paths = named(rf"(?<![\w/.-])((?:{folders})/[\w./-]*\w)")
    modules = named(r"(?<![\w/.])((?:lce_core|catalog|tasks|flows|dashboards)(?:\.(?!md\b)\w+)+)")
    every = paths | {module.replace(".", "/") for module in modules}
    assert [
        one for one in every if not ((ROOT / one).exists() or (ROOT / f"{one}.py").exists())
    ] == []
    for document, content in DOCUMENTS.items():
        links = re.findall(r"\]\((?!https?://|#|mailto:)([^)#\s]+)", content)
        assert [one for one in links if not (document.parent / one).exists()] == [], document


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The site of `make docs`, built in strict mode, which checks every link."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.mark.slow
def test_the_site_has_all_that_the_code_registers_and_loads_nothing_from_other_hosts(site):
    pages = {page: page.read_text("utf-8") for page in site.rglob("*.html")}
    loaded = re.compile(
        r"<(?:script|img|link|iframe|source)\b[^>]*?\b(?:src|href)=\"?(?:https?:)?//"
    )
    assert [page for page, content in pages.items() if loaded.search(content)] == []
    headings = {
        "methods": METHODS.names(),
        "benchmarks": BENCHMARKS.names(),
        "options": ["lce-run", "lce-rebuild-catalog", "lce-sql"],
        "views": ["cells", "paired_difference", "lcegtable_2"],
        "recipes": ["lceg_code"],
    }
    for page, names in headings.items():
        content = pages[site / page / "index.html"]
        assert [name for name in names if f'id="{name}"' not in content] == [], page


@pytest.mark.slow
def test_axe_core_finds_no_serious_fault_on_the_site(site, chrome):
    for scheme in ("light", "dark"):
        page = chrome.new_page(color_scheme=scheme)
        for name in ("report", "studies", "methods"):
            page.goto((site / name / "index.html").as_uri())
            assert faults(page) == [], (scheme, name)
        page.close()


def kept_scores(study: str) -> dict[tuple[str, str, str, str, int, str], dict[str, str]]:
    """Rows of a kept result by method, frozen, benchmark, task, length and metric."""
    with (ROOT / "docs" / "results" / study / "scores.csv").open(encoding="utf-8") as file:
        return {
            (
                row["method"],
                row["frozen"],
                row["benchmark"],
                row["task"],
                int(row["eval_length"]),
                row["metric"],
            ): row
            for row in csv.DictReader(file)
        }


COMPANIONS = sorted(
    path.stem
    for path in (ROOT / "docs" / "results").glob("*.md")
    if path.stem in set(shipped_studies()) - {"toy"}
)


@pytest.mark.parametrize("study", COMPANIONS)
def test_a_page_of_results_begins_with_the_studys_expectations(study):
    page = text(f"docs/results/{study}.md")
    spec = parse_study(study_path(study).read_text(encoding="utf-8"), study)
    sentences = [f"{number}. {entry.says}" for number, entry in enumerate(spec.expects, start=1)]
    assert re.findall(r"^\d+\. .*$", page, flags=re.MULTILINE) == sentences


@pytest.mark.parametrize(
    ("study", "cells", "commits"),
    [
        ("smollm2-quick", "all", 1),
        ("smollm2-frozen", "all", 1),
        ("smollm2-texts", "all", 2),
        ("smollm2-tuned", "261", 1),
    ],
)
def test_kept_results_are_whole_and_of_clean_commits(study, cells, commits):
    folder = ROOT / "docs" / "results" / study
    page = (folder / "README.md").read_text(encoding="utf-8")
    digest = hashlib.sha256((folder / "scores.csv").read_bytes()).hexdigest()
    assert f"sha256 `{digest}`" in page
    done, planned = re.findall(r"^(\d+) of (\d+) cells are done", page, flags=re.MULTILINE)[0]
    assert done == (planned if cells == "all" else cells)
    found = re.findall(r"^- \d+ cells: commit `[0-9a-f]{12}`;", page, flags=re.MULTILINE)
    assert len(found) == commits
    for picture in re.findall(r"!\[[^]]*\]\(([^)]*)\)", page):
        assert (folder / picture).is_file(), picture
    hypothesis = parse_study(study_path(study).read_text(encoding="utf-8"), study).hypothesis
    assert re.search(f"(Expected|Hypothesis): {re.escape(hypothesis)}", page)


@pytest.mark.parametrize(
    ("mark", "study", "tasks", "losses", "digits"),
    [
        (
            "results",
            "smollm2-texts",
            ("code", "pg19"),
            [("multi_key", task, 16384, "nll_beyond") for task in ("code", "pg19")],
            3,
        ),
        (
            "tuned results",
            "smollm2-tuned",
            ("pg19",),
            [
                ("perplexity_documents", "pg19", length, "perplexity")
                for length in (8192, 16384, 32768)
            ],
            2,
        ),
    ],
)
def test_the_readme_shows_what_a_real_model_gave(mark, study, tasks, losses, digits):
    part = text("README.md").partition(f"<!-- {mark}:begin -->")[2].partition(f"<!-- {mark}:end")[0]
    scores = kept_scores(study)
    rows = [
        [field.strip() for field in line.strip("| ").split("|")]
        for line in part.splitlines()
        if line.startswith("| ") and "8,192" not in line
    ]
    assert len(rows) >= 6
    for label, *shown in rows:
        method = label.removesuffix(" ~")
        frozen = not method.endswith(" tuned")
        variant = method.removesuffix(" tuned"), str(frozen).lower()
        lost = [float(scores[*variant, *loss]["value"]) for loss in losses]
        keys = [scores.get((*variant, "multi_key", task, 16384, "accuracy")) for task in tasks]
        found = "-"
        if all(keys):
            right = sum(round(float(key["value"]) * int(key["num_samples"])) for key in keys)
            found = f"{right} of {sum(int(key['num_samples']) for key in keys)}"
        assert shown == [*(f"{value:.{digits}f}" for value in lost), found], label


@pytest.mark.parametrize("document", ["README.md", "docs/studies.md"])
def test_every_cell_of_a_study_in_the_documents_can_be_computed(document, tmp_path):
    (example,) = examples(document, "yaml")
    file = tmp_path / "study.yaml"
    file.write_text(example, encoding="utf-8")
    plan = compile_request(str(file), Execution(home=tmp_path / "home")).plan
    assert plan.cells
    assert [cell.unavailable for cell in plan.cells if cell.step is None] == []


@pytest.mark.slow
def test_the_readmes_study_decides_its_expectations(tmp_path):
    file, home = tmp_path / "study.yaml", tmp_path / "home"
    file.write_text(examples("README.md", "yaml")[0], encoding="utf-8")
    promised = lce(home, "plan", str(file), "--power")
    lce(home, "run", str(file))
    sql = "SELECT outcome FROM expectations WHERE entry IS NOT NULL"
    outcomes = [outcome for (outcome,) in run_query(home / "catalog.duckdb", sql)[1]]
    assert "cannot be decided" not in promised
    assert outcomes == ["confirmed", "confirmed"]


NEW = {
    "method": "root",
    "benchmark": "first_number",
    "model": "deep_llama",
    "corpus": "markdown_folder",
}
"""The plug-ins with marked lines that the documents show whole."""


def example_of(kind: str) -> str:
    """The whole plug-in, in a file of its own or in docs/plugins.md."""
    file = ROOT / "docs" / "examples" / "plugins" / KINDS[kind] / f"{NEW[kind]}.py"
    if file.exists():
        return file.read_text(encoding="utf-8")
    name = "".join(part.capitalize() for part in NEW[kind].split("_"))
    (found,) = (one for one in examples("docs/plugins.md", "python") if f"\nclass {name}(" in one)
    return found


@pytest.fixture
def folder(tmp_path) -> Iterator[Path]:
    """A folder of plug-ins, which take part no longer than the test."""
    with plugins_removed_after():
        yield tmp_path / "plugins"


def new_file(kind: str, folder: Path) -> Path:
    done = CliRunner().invoke(app, ["new", kind, NEW[kind], "--folder", str(folder)])
    assert done.exit_code == 0, done.output
    file = folder / KINDS[kind] / f"{NEW[kind]}.py"
    assert f"lce check {file}\n" in done.output
    return file


def filled_in(kind: str, folder: Path) -> Path:
    """A new file whose marked lines are those of the example in the documents."""
    file = new_file(kind, folder)
    example = example_of(kind)
    lines = file.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(example.splitlines()):
        if MARK in lines[number]:
            lines[number] = line
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert file.read_text(encoding="utf-8") == example
    return file


def checked(path: Path) -> str:
    done = CliRunner().invoke(app, ["check", str(path)])
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.parametrize("kind", ["method", "model"])
def test_the_example_is_a_whole_plug_in(kind, folder):
    checked(filled_in(kind, folder))


def test_the_example_corpus_is_a_whole_plug_in(folder, tmp_path):
    filled_in("corpus", folder)
    add_plugin_folders((folder,))
    notes = tmp_path / "notes"
    (notes / "deep").mkdir(parents=True)
    for number in range(60):
        (notes / "deep" / f"{number}.md").write_text(f"---\ntitle: x\n---\nNote {number}.\n")
    (notes / "plain.md").write_text("Plain --- text.\n---\n")
    (notes / "other.txt").write_text("no note")
    corpus = CORPORA.parse({"name": "markdown_folder", "held_out_percent": 30.0}, "test")
    parts = [list(corpus.documents(split, {"text": notes})) for split in ("train", "held_out")]
    assert all(parts)
    assert {one.domain for part in parts for one in part} == {"text"}
    assert {one.name: one.text for part in parts for one in part} == {
        "plain.md": "Plain --- text.\n---\n",
        **{f"deep/{number}.md": f"Note {number}.\n" for number in range(60)},
    }
    checked(folder)


def test_the_example_of_attention_is_in_what_new_writes_which_passes_the_check(folder):
    arguments = ["new", "method", "capped", "--attention", "--folder", str(folder)]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    file = folder / "methods" / "capped.py"
    (example,) = (one for one in examples("docs/plugins.md", "py") if "CappedScheme" in one)
    assert f"\n{example}\n\n" in file.read_text(encoding="utf-8")
    assert "ok   attention: " in checked(file)


@pytest.mark.slow
def test_the_example_benchmark_is_a_whole_plug_in(folder):
    filled_in("benchmark", folder)
    add_plugin_folders((folder,))
    asked: Any = benchmark("first_number")
    cell = request(asked, 600)
    prompts = asked.prompts(cell)
    for prompt in prompts:
        shown = cell.tokenizer.decode(prompt.ids)
        assert shown.startswith(f"The number is {prompt.reference}. The grass")
        assert shown.endswith("The sky is blue. The number is")
    gold = asked.scored("single", prompts, [f" {prompt.reference}." for prompt in prompts])
    assert {sample.score for sample in gold} == {1.0}
    # "The number is 12345. The number is", and 8 for the answer.
    with pytest.raises(UnavailableError, match="at least 42 tokens"):
        asked.evaluate(request(asked, 30))
    # Checks that ask a model all 100 prompts once more would take most of the time.
    asking = (benchmarks.check_cell, benchmarks.check_repeatable, benchmarks.check_savings)
    (case,) = benchmark_cases.cases(type(asked), dict)
    for check in {*benchmarks.checks(type(asked))} - {*asking}:
        check(case)


def test_new_refuses_names_that_are_taken_or_no_names_and_attention_of_others(tmp_path):
    taken = {"benchmark": ("passkey", "prompt"), "corpus": ("document", "true")}
    wrong = ("pi", "two-words", "class", "_hidden", "", "source")
    for kind, names in {**taken, "method": wrong}.items():
        for name in names:
            with pytest.raises(SpecError, match=re.escape(repr(name))):
                new_plugin(kind, name, tmp_path)
    with pytest.raises(SpecError, match="'attention', for a class Attention"):
        new_plugin("method", "attention", tmp_path, attention=True)
    with pytest.raises(SpecError, match="--attention only for a method"):
        new_plugin("benchmark", "mine", tmp_path, attention=True)
    assert not list(tmp_path.iterdir())


def test_new_overwrites_no_file(tmp_path):
    file = new_file("method", tmp_path)
    file.write_text("mine", encoding="utf-8")
    with pytest.raises(SpecError, match=re.escape(str(file))):
        new_plugin("method", NEW["method"], tmp_path)
    assert file.read_text(encoding="utf-8") == "mine"
