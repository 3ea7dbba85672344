"""Foreign text in Markdown is shown literally by a CommonMark reader with tables."""

from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from dashboards.latex import write_latex
from dashboards.markdown import file_name, plain, write_markdown
from dashboards.report import write_report
from lce_core.terminal import visible
from tests.support.catalogs.answered_catalog import Answered, written
from tests.support.catalogs.sample_store import compared

ATTACKS = (
    "[x](javascript:alert(1))", "![x](http://example.org/a.png)", "<img src=x onerror=alert(1)>",
    "<script>alert(1)</script>", "[x]: javascript:alert(1)", "[x][y]", "<http://example.org>",
    "http://example.org", "www.example.org", "a@example.org", "a | b | c", "a\n\n# title\n",
    "a\n|---|---|\n", "# title", "> quote", "- item", "+ item", "1. item", "2) item", "```\ncode",
    "`code`", "**bold** _it_ ~~gone~~", "$x$", "&lt;b&gt; &#60;", "\\[x](y)", "[ ] task", "---",
    "===", "    code", "\x1b[2J \u202e", "![[[", "]](x)", "[0.1, 0.2](javascript:x)",
)  # fmt: skip
READER = MarkdownIt("commonmark").enable(["table", "strikethrough"])
ACTIVE = st.text(alphabet="ab1 []()!<>&;#`*_~|\\:/-+=.$@\n\t")


class Shown(HTMLParser):
    """Collect tags, attributes and text of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        assert not attrs

    def handle_data(self, data: str) -> None:
        self.text += data


def as_read(text: str) -> str:
    return visible(" ".join(text.split()))


def literally(text: str) -> None:
    shown = Shown(READER.render(f"- a\n- {plain(text)}\n"))
    assert shown.tags == ["ul", "li", "li"], text
    assert shown.text.split() == ["a", *as_read(text).split()]


def test_attacks_are_shown_literally():
    for text in ATTACKS:
        literally(text)
        # Bare text that GitHub turns into links.
        assert not any(one in plain(text) for one in ("://", "www.", "@"))


@given(ACTIVE | st.text())
def test_any_text_in_a_list_item_is_shown_literally(text):
    literally(text)


@given(ACTIVE | st.text())
def test_any_text_in_a_table_stays_in_its_cell(text):
    page = f"| method | why |\n|---|---|\n| yarn | {plain(text)} |\n| pi | b |\n"
    shown = Shown(READER.render(page))
    assert shown.tags == ["table", "thead", *["tr", "th", "th"], "tbody", *["tr", "td", "td"] * 2]
    assert shown.text.split() == ["method", "why", "yarn", *as_read(text).split(), "pi", "b"]


def test_claims_stay_readable_in_the_markdown_source():
    for text in (
        "yarn tuned is better than pi on needle_2: higher by 0.12 [-0.05 to 0.19]; p_Holm = 0.02.",
        "a score of 0.12 [0.05, 0.19]",
        "p_Holm < 0.05 & more than 3",
    ):
        assert plain(text) == text


@given(st.text(min_size=1))
def test_file_names_stay_in_the_folder(text):
    name = file_name(text, 512)
    assert set(name) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-")
    assert Path(name).name == name


@pytest.mark.slow
def test_reports_of_a_foreign_hypothesis_and_task_show_text(tmp_path):
    task = (
        "<img src=http://example.org/x onerror=alert(1)> | [x](javascript:y) \\input{/etc/passwd}"
    )
    cells = [
        Answered(name, True, 0, "passkey", task, 512, [1.0] * n + [0.0] * (40 - n), n / 40)
        for name, n in (("none", 5), ("yarn", 35))
    ]
    catalog = written(
        tmp_path / "catalog.duckdb",
        cells,
        hypothesis="\n\n".join(("yarn wins.", *ATTACKS)),
        expects=[
            compared(number, attack, ("yarn", True), "passkey", 512)
            for number, attack in enumerate(ATTACKS)
        ],
    )
    page = write_markdown(catalog, "s", tmp_path / "md").read_text(encoding="utf-8")
    rendered = READER.render(page)
    assert "javascript:alert" in rendered  # as text
    assert 'href="javascript' not in rendered
    assert "<script" not in rendered
    assert "onerror" not in rendered.replace("onerror=alert(1)&gt;", "")
    assert 'src="http' not in rendered
    html = write_report(catalog, "s", tmp_path / "s.html").read_text(encoding="utf-8")
    assert "<img" not in html
    assert "alert(1)</script>" not in html
    assert "&lt;script&gt;alert(1)" in html
    latex = write_latex(catalog, "s", tmp_path / "s.tex").read_text(encoding="utf-8")
    assert "\\input" not in latex
