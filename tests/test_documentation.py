"""Documents say what the code says: commands, keys, links, and examples that work.

Strategy: read the Markdown files, compare what they name with what the code defines, and run what
they show.
"""

from __future__ import annotations

import csv
import hashlib
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from xml.etree import ElementTree as ET

import pytest
import typer.main
from pydantic import BaseModel
from typer.testing import CliRunner

from flows.request import compile_request
from flows.settings import shipped_studies, study_path
from lce.cli import app
from lce.plugins.scaffolding import KINDS, new_plugin
from lce_core.benchmarks import BENCHMARKS
from lce_core.errors import SpecError
from lce_core.execution import Execution
from lce_core.methods import METHODS
from lce_core.recipe import Evaluation, Training, Upsampling
from lce_core.registry import MARK
from lce_core.study.expectation import Expectation
from lce_core.study.spec import BenchmarkEntry, MethodEntry, StudySpec
from lce_core.study.study_file import parse_study
from lce_core.study.tuning import Tune
from tests.support.accessibility import faults
from tests.support.repository import ROOT

if TYPE_CHECKING:
    from playwright.sync_api import Browser

DOCUMENTS = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
)


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def commands() -> dict[str, Any]:
    # Typer carries its own copy of click, so the group has no class to name here.
    group: Any = typer.main.get_command(app)
    return dict(group.commands)


def examples(name: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text(name), flags=re.MULTILINE | re.DOTALL)


def test_the_page_of_commands_names_every_command() -> None:
    assert [name for name in commands() if f"`lce {name}" not in text("docs/commands.md")] == []


def test_the_readme_has_at_most_90_lines() -> None:
    assert len(text("README.md").splitlines()) <= 90


def test_every_command_named_in_a_document_exists() -> None:
    named = {
        name
        for document in DOCUMENTS
        for name in re.findall(
            r"(?:`|^|bin/)lce ([a-z]+)\b", document.read_text("utf-8"), re.MULTILINE
        )
    }
    assert named <= set(commands())


def test_every_study_named_in_a_document_is_shipped() -> None:
    named = {
        name
        for document in DOCUMENTS
        for name in re.findall(
            r"\blce (?:run|plan|status|report) ([a-z][a-z0-9-]+)(?![\w./-])",
            document.read_text("utf-8"),
        )
    }
    assert named
    assert named <= set(shipped_studies())


def test_every_command_and_option_has_help() -> None:
    silent = [name for name, command in commands().items() if not command.help]
    for name, command in commands().items():
        options = [option for option in command.params if option.param_type_name == "option"]
        silent += [f"{name} {option.name}" for option in options if not option.help]
    assert silent == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_documents_link_only_to_files_that_exist(document: Path) -> None:
    links = re.findall(r"\]\((?!https?://|#|mailto:)([^)#\s]+)", document.read_text("utf-8"))
    assert [link for link in links if not (document.parent / link).exists()] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_documents_name_only_files_and_modules_that_exist(document: Path) -> None:
    content = document.read_text("utf-8")
    folders = "lce_core|catalog|tasks|flows|dashboards|lce|tests|perf|docs|examples"
    paths = re.findall(rf"(?<![\w/.-])((?:{folders})/[\w./-]*\w)", content)
    modules = re.findall(
        r"(?<![\w/.])((?:lce_core|catalog|tasks|flows|dashboards)(?:\.(?!md\b)\w+)+)", content
    )
    named = [*paths, *(module.replace(".", "/") for module in modules)]
    found = [path for path in named if (ROOT / path).exists() or (ROOT / f"{path}.py").exists()]
    assert sorted(set(named) - set(found)) == []


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
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
def test_the_site_loads_nothing_from_other_hosts(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 20
    loaded = re.compile(
        r"<(?:script|img|link|iframe|source)\b[^>]*?\b(?:src|href)=\"?(?:https?:)?//"
    )
    assert [page for page in pages if loaded.search(page.read_text("utf-8"))] == []


@pytest.mark.long
@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_core_finds_no_serious_fault_on_the_site(
    site: Path, chrome: Browser, scheme: Literal["light", "dark"]
) -> None:
    page = chrome.new_page(color_scheme=scheme)
    for name in ("report", "studies", "methods"):
        page.goto((site / name / "index.html").as_uri())
        assert faults(page) == [], name
    page.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "heading"),
    [
        *(("methods", name) for name in METHODS.names()),
        *(("benchmarks", name) for name in BENCHMARKS.names()),
        *(("options", f"lce-{name}") for name in ("run", "rebuild-catalog", "sql")),
        *(("views", view) for view in ("cells", "paired_difference", "lcegtable_2")),
        ("recipes", "lceg_code"),
    ],
)
def test_the_site_has_a_section_for_everything_the_code_registers(
    site: Path, page: str, heading: str
) -> None:
    assert f'id="{heading}"' in (site / page / "index.html").read_text("utf-8")


@pytest.mark.parametrize(
    "section",
    [
        StudySpec,
        MethodEntry,
        BenchmarkEntry,
        Expectation,
        Training,
        Tune,
        Upsampling,
        Evaluation,
        Execution,
    ],
)
def test_every_key_of_a_study_or_execution_has_a_meaning(section: type[BaseModel]) -> None:
    assert [key for key, field in section.model_fields.items() if not field.description] == []


def test_the_picture_of_imports_is_that_of_the_source(tmp_path: Path) -> None:
    fresh = tmp_path / "imports.svg"
    result = subprocess.run(
        [sys.executable, "docs/imports.py", "--svg", str(fresh)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    drawn = fresh.read_text("utf-8")
    assert text("docs/imports.svg") == drawn, "python docs/imports.py --svg docs/imports.svg"


def test_every_room_lies_inside_the_house_of_the_picture() -> None:
    picture = ET.fromstring(text("docs/imports.svg"))
    boxes = [
        (box.attrib["class"], float(box.attrib["x"]), float(box.attrib["width"]))
        for box in picture.iter("{http://www.w3.org/2000/svg}rect")
        if "class" in box.attrib
    ]
    ((_, left, width),) = (box for box in boxes if box[0] == "house")
    rooms = [(x, wide) for name, x, wide in boxes if name == "box"]
    assert len(rooms) > 20
    assert all(left <= x and x + wide <= left + width for x, wide in rooms)


@pytest.mark.parametrize(
    ("file", "line", "complaint"),
    [
        ("lce_core/devices.py", "import lce_core.training.job", "devices imports training, which"),
        ("catalog/status.py", "from lce import cli", "catalog imports lce, which"),
        ("lce_core/store/records.py", "from lce_core.store import artifacts", "circle: lce_core."),
    ],
)
def test_an_arrow_up_or_round_is_named(
    tmp_path: Path, file: str, line: str, complaint: str
) -> None:
    for folder in ("lce_core", "catalog", "tasks", "flows", "dashboards", "lce"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "docs").mkdir()
    shutil.copy(ROOT / "docs" / "imports.py", tmp_path / "docs")
    (tmp_path / file).write_text(f"{(ROOT / file).read_text('utf-8')}\n{line}\n", "utf-8")
    result = subprocess.run(
        [sys.executable, "docs/imports.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 1
    assert complaint in result.stdout, result.stdout + result.stderr


def test_the_readme_begins_with_a_study_of_ten_lines() -> None:
    (example,) = examples("README.md", "yaml")
    assert len(example.splitlines()) == 10
    assert parse_study(example, "README.md").study == "two-methods"


def kept_scores(study: str) -> dict[tuple[str, str, str, int, str], dict[str, str]]:
    """Rows of a kept result by method, benchmark, task, length and metric."""
    with (ROOT / "docs" / "results" / study / "scores.csv").open(encoding="utf-8") as file:
        return {
            (
                row["method"],
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
def test_a_page_of_results_begins_with_the_studys_expectations(study: str) -> None:
    page = text(f"docs/results/{study}.md")
    assert len(page.splitlines()) <= 60
    content = study_path(study).read_text(encoding="utf-8")
    spec = parse_study(content, study)
    sentences = [f"{number}. {entry.says}" for number, entry in enumerate(spec.expects, start=1)]
    assert re.findall(r"^\d+\. .*$", page, flags=re.MULTILINE) == sentences
    results = text("docs/results/README.md")
    assert f"]({study}.md)" in results


@pytest.mark.parametrize("study", ["smollm2-quick", "smollm2-frozen"])
def test_kept_results_are_whole_and_of_one_clean_commit(study: str) -> None:
    folder = ROOT / "docs" / "results" / study
    page = (folder / "README.md").read_text(encoding="utf-8")
    digest = hashlib.sha256((folder / "scores.csv").read_bytes()).hexdigest()
    assert f"sha256 `{digest}`" in page
    done, planned = re.findall(r"^(\d+) of (\d+) cells are done", page, flags=re.MULTILINE)[0]
    assert done == planned
    assert len(re.findall(r"^- \d+ cells: commit `[0-9a-f]{12}`;", page, flags=re.MULTILINE)) == 1
    for picture in re.findall(r"!\[[^]]*\]\(([^)]*)\)", page):
        assert (folder / picture).is_file(), picture
    hypothesis = parse_study(
        (ROOT / "flows" / "studies" / f"{study}.yaml").read_text(encoding="utf-8"), study
    ).hypothesis
    assert re.search(f"(Expected|Hypothesis): {re.escape(hypothesis)}", page)


def test_the_readme_shows_what_a_real_model_gave() -> None:
    part = text("README.md").partition("<!-- results:begin -->")[2].partition("<!-- results:end")[0]
    scores = kept_scores("smollm2-frozen")
    rows = [
        [field.strip() for field in line.strip("| ").split("|")]
        for line in part.splitlines()
        if line.startswith("| ") and "8,192" not in line
    ]
    assert len(rows) >= 6
    for label, *shown in rows:
        method = label.removesuffix(" ~")
        perplexities = [
            scores[method, "perplexity_documents", "pg19", length, "perplexity"]["value"]
            for length in (8192, 16384, 32768)
        ]
        keys = [scores[method, "multi_key", task, 16384, "accuracy"] for task in ("code", "pg19")]
        found = sum(round(float(key["value"]) * int(key["num_samples"])) for key in keys)
        assert shown == [
            *(f"{float(value):.2f}" for value in perplexities),
            f"{found} of {sum(int(key['num_samples']) for key in keys)}",
        ], label


def test_the_example_study_is_read_without_complaint() -> None:
    (example,) = examples("docs/studies.md", "yaml")
    assert parse_study(example, "docs/studies.md").study == "four-times"


@pytest.mark.parametrize("document", ["README.md", "docs/studies.md"])
def test_every_cell_of_a_study_in_the_documents_can_be_computed(
    document: str, tmp_path: Path
) -> None:
    (example,) = examples(document, "yaml")
    file = tmp_path / "study.yaml"
    file.write_text(example, encoding="utf-8")
    plan = compile_request(str(file), Execution(home=tmp_path / "home")).plan
    assert plan.cells
    assert [cell.unavailable for cell in plan.cells if cell.step is None] == []


NEW = {
    "method": "root",
    "benchmark": "first_number",
    "model": "deep_llama",
    "corpus": "markdown_folder",
}
"""The plug-ins with marked lines that docs/plugins.md shows whole."""


def example_of(name: str) -> str:
    """The whole plug-in of docs/plugins.md whose class has this name."""
    (found,) = (one for one in examples("docs/plugins.md", "python") if f"\nclass {name}(" in one)
    return found


def run_code(code: str, *arguments: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def new_file(kind: str, folder: Path) -> Path:
    done = CliRunner().invoke(app, ["new", kind, NEW[kind], "--folder", str(folder)])
    assert done.exit_code == 0, done.output
    file = folder / KINDS[kind] / f"{NEW[kind]}.py"
    assert f"lce check {file}\n" in done.output
    return file


def fill_in(file: Path, example: str) -> list[str]:
    """Replaces the marked lines by those of the example; returns what they were."""
    lines, written = file.read_text(encoding="utf-8").splitlines(), example.splitlines()
    marked = [number for number, line in enumerate(lines) if MARK in line]
    filled = [written[number] if number in marked else line for number, line in enumerate(lines)]
    file.write_text("\n".join(filled) + "\n", encoding="utf-8")
    return [lines[number] for number in marked]


@pytest.mark.parametrize("kind", NEW)
def test_a_new_file_with_its_marked_lines_filled_in_is_the_example(
    kind: str, tmp_path: Path
) -> None:
    example = example_of("".join(part.capitalize() for part in NEW[kind].split("_")))
    file = new_file(kind, tmp_path)
    assert fill_in(file, example)
    assert file.read_text(encoding="utf-8") == example


@pytest.mark.parametrize("kind", [kind for kind in NEW if kind != "corpus"])
def test_a_new_file_is_refused_at_its_first_marked_line(kind: str, tmp_path: Path) -> None:
    file = new_file(kind, tmp_path)
    done = run_code(
        "import sys; from lce.cli import main; main()",
        Path(f"{kind}s"),
        Path("--plugins"),
        tmp_path,
    )
    assert done.returncode == 2
    assert f"{file}, line 1: " in done.stderr
    assert "Traceback" not in done.stderr


def test_a_new_corpus_fails_the_check_at_its_first_marked_line(tmp_path: Path) -> None:
    file = new_file("corpus", tmp_path)
    code = "import sys; sys.argv = ['lce', 'check', sys.argv[1]]; from lce.cli import main; main()"
    done = run_code(code, file)
    assert done.returncode == 1
    assert f"{file}, line 1: " in done.stdout


@pytest.mark.slow
def test_the_example_model_is_a_whole_plug_in(tmp_path: Path) -> None:
    file = new_file("model", tmp_path)
    fill_in(file, example_of("DeepLlama"))
    done = run_code(
        """
import sys, pathlib
import numpy as np
import torch
from lce_core.models import MODELS
from lce_core.study.plugin_folders import add_plugin_folders
add_plugin_folders((pathlib.Path(sys.argv[1]),))
model = MODELS.parse({"name": "deep_llama", "steps": 10}, "test")
weights = model.initialise(0)
assert sum(one.numel() for one in weights.parameters()) == 431_712
ids = torch.tensor([model.tokenizer(None)("one two").input_ids])
assert weights(ids).logits.shape == (1, 7, 392)
assert model.pretraining().num_tokens == 10 * 16 * 128
sys.argv = ["lce", "check", sys.argv[1]]
from lce.cli import main
main()
""",
        tmp_path,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_the_example_corpus_is_a_whole_plug_in(tmp_path: Path) -> None:
    file = new_file("corpus", tmp_path / "plugins")
    fill_in(file, example_of("MarkdownFolder"))
    notes = tmp_path / "notes"
    (notes / "deep").mkdir(parents=True)
    for number in range(60):
        (notes / "deep" / f"{number}.md").write_text(f"---\ntitle: x\n---\nNote {number}.\n")
    (notes / "plain.md").write_text("Plain --- text.\n---\n")
    (notes / "other.txt").write_text("no note")
    done = run_code(
        """
import sys, pathlib
from lce_core.corpora import CORPORA
from lce_core.errors import DataError
from lce_core.study.plugin_folders import add_plugin_folders
add_plugin_folders((pathlib.Path(sys.argv[1]),))
notes = pathlib.Path(sys.argv[2])
corpus = CORPORA.parse({"name": "markdown_folder", "held_out_percent": 30.0}, "test")
parts = [list(corpus.documents(split, {"text": notes})) for split in ("train", "held_out")]
assert all(parts) and {d.domain for part in parts for d in part} == {"text"}
texts = {d.name: d.text for part in parts for d in part}
assert texts == {
    "plain.md": "Plain --- text.\\n---\\n",
    **{f"deep/{number}.md": f"Note {number}.\\n" for number in range(60)},
}
before = corpus.digest({"text": notes})
(notes / "plain.md").write_text("changed")
assert corpus.digest({"text": notes}) != before
try:
    corpus.digest({"text": pathlib.Path(sys.argv[1])})
except DataError as error:
    assert "no *.md" in str(error)
else:
    raise AssertionError("a folder without Markdown")
sys.argv = ["lce", "check", sys.argv[1]]
from lce.cli import main
main()
""",
        tmp_path / "plugins",
        notes,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_the_example_method_is_a_whole_plug_in(tmp_path: Path) -> None:
    file = new_file("method", tmp_path)
    fill_in(file, example_of("Root"))
    done = run_code(
        """
import sys, pathlib
import numpy as np
from lce_core.methods import METHODS
from lce_core.models import MODELS
from lce_core.rope import ContextLengths
from lce_core.study.plugin_folders import add_plugin_folders
add_plugin_folders((pathlib.Path(sys.argv[1]),))
method = METHODS.parse({"name": "root", "scale": 4.0}, "test")
geometry = MODELS.load("toy_llama").geometry
lengths = ContextLengths(512, 2048, 100)
method.check(geometry, lengths)
np.testing.assert_allclose(method.rope_table(geometry, lengths).inv_freq, geometry.inv_freq() / 2)
sys.argv = ["lce", "check", sys.argv[1]]
from lce.cli import main
main()
""",
        tmp_path,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_example_of_attention_is_what_new_writes_and_passes_the_check(tmp_path: Path) -> None:
    arguments = ["new", "method", "capped", "--attention", "--folder", str(tmp_path)]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    file = tmp_path / "methods" / "capped.py"
    assert file.read_text(encoding="utf-8") == example_of("Capped")
    code = "import sys; sys.argv = ['lce', 'check', sys.argv[1]]; from lce.cli import main; main()"
    checked = run_code(code, file)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "ok   attention: " in checked.stdout


def test_only_a_method_has_attention(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="--attention only for a method"):
        new_plugin("benchmark", "mine", tmp_path, attention=True)


@pytest.mark.slow
def test_the_example_benchmark_is_a_whole_plug_in(tmp_path: Path) -> None:
    file = new_file("benchmark", tmp_path)
    fill_in(file, example_of("FirstNumber"))
    done = run_code(
        """
import sys, pathlib
from lce_core.errors import UnavailableError
from lce_core.study.plugin_folders import add_plugin_folders
from tests.support.cells import benchmark, request
add_plugin_folders((pathlib.Path(sys.argv[1]),))
asked = benchmark("first_number")
cell = request(asked, 600)
prompts = asked.prompts(cell)
assert len(prompts) == 100 and len({prompt.reference for prompt in prompts}) > 90
for prompt in prompts:
    text = cell.tokenizer.decode(prompt.ids)
    assert text.startswith(f"The number is {prompt.reference}. The grass")
    assert text.endswith("The sky is blue. The number is")
    assert 592 - 37 < len(prompt.ids) <= 592  # 8 of 600 are the answer's, a filler has 37 bytes
result = asked.evaluate(cell)
assert [score.metric for score in result.scores] == ["accuracy"]
assert result.scores[0].ci_low <= result.scores[0].value <= result.scores[0].ci_high
assert abs(asked.num_tokens("single", 600, 0) - result.num_tokens) < 0.15 * result.num_tokens
gold = asked.scored("single", prompts, [f" {prompt.reference}." for prompt in prompts])
assert {sample.score for sample in gold} == {1.0}
try:
    asked.evaluate(request(asked, 30))
except UnavailableError as error:
    # "The number is 12345. The number is", and 8 for the answer
    assert "answer take 42; expected at least 42 tokens" in str(error)
else:
    raise AssertionError("30 tokens hold no prompt")
sys.argv = ["lce", "check", sys.argv[1]]
from lce.cli import main
main()
""",
        tmp_path,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", ["pi", "passkey", "two-words", "class", "_hidden", ""])
def test_new_refuses_names_that_are_taken_or_no_names(name: str, tmp_path: Path) -> None:
    kind = "benchmark" if name == "passkey" else "method"
    with pytest.raises(SpecError, match=re.escape(repr(name))):
        new_plugin(kind, name, tmp_path)
    assert not list(tmp_path.iterdir())


def test_new_overwrites_no_file(tmp_path: Path) -> None:
    file = new_file("method", tmp_path)
    file.write_text("mine", encoding="utf-8")
    with pytest.raises(SpecError, match=re.escape(str(file))):
        new_plugin("method", NEW["method"], tmp_path)
    assert file.read_text(encoding="utf-8") == "mine"
