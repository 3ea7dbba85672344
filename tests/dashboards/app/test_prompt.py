"""The page of answers shows a sample's prompt with marks, or the reason why it cannot.

The decoder's input was recorded; prompts come from the same subprocess as in a user's page.
"""

import json
import re
import shutil
import sys
from collections.abc import Callable
from html import unescape
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st
from streamlit.testing.v1 import AppTest

from dashboards.app.views import prompt as prompts
from dashboards.app.views.prompt import (
    AROUND,
    BEGINNING,
    END,
    WHOLE,
    as_html,
    build_prompts,
    shown,
)
from tests.support.asked_cells import LENGTH, AskedStudy, rewrite_record
from tests.support.ports import listens, unused_port
from tests.support.studies import start, wait_until


@pytest.fixture(scope="module")
def study(made_once) -> AskedStudy:
    return AskedStudy.of(made_once)


@pytest.fixture(autouse=True)
def _main(monkeypatch: pytest.MonkeyPatch) -> None:
    # Restore __main__ after Streamlit replaces it: processes spawned later could not find it.
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])


def first_answer(catalog: str) -> None:
    # Streamlit runs the source of this function, so it must import everything it uses.
    from pathlib import Path
    from unittest.mock import patch

    from dashboards.app.catalog import Catalog
    from dashboards.app.shell import framed
    from dashboards.app.views import answers

    # Streamlit's test runner cannot click a row.
    with patch.object(answers, "table", lambda *_, **__: 0):
        framed(Catalog(Path(catalog)), "answers", answers.page)


def opened(home: Path) -> AppTest:
    catalog = str(home / "catalog.duckdb")
    app = AppTest.from_function(first_answer, args=(catalog,), default_timeout=600).run()
    assert [error.message for error in app.exception] == []
    return app


@pytest.mark.slow
def test_the_page_shows_the_decoders_input_and_refuses_a_prompt_that_differs(study, tmp_path):
    app = opened(study.home)
    (box,) = [html.proto.body for html in app.get("html") if "<pre" in html.proto.body]
    written = re.sub(r"</?mark>", "", box.partition(">")[2].removesuffix("</pre>"))
    cell = study.cell("needle")
    given_ids = study.recorded[cell][0]
    text = unescape(written)
    assert len(given_ids) == LENGTH - 1
    plain = bytes(token for token in given_ids if token < 256).decode(errors="replace")
    assert re.sub(r"<(key|query)-[\d-]+>", "", text) == plain
    assert re.search(r"<mark>&lt;key-\d-\d\d&gt;</mark>", box)
    assert any("the sha256 of their token ids" in caption.value for caption in app.caption)
    assert any(f"{LENGTH - 1:,} tokens" in line.value for line in app.text)

    shutil.copytree(study.home, tmp_path / "home")
    rewrite_record(
        tmp_path / "home", cell, lambda record: record["spec"]["benchmark"].update(version=99)
    )
    app = opened(tmp_path / "home")
    assert [html for html in app.get("html") if "<pre" in html.proto.body] == []
    assert [warning.value for warning in app.warning] == ["This prompt cannot be shown."]
    assert any("VERSION 99, with which the cell was computed" in code.value for code in app.code)


@pytest.mark.slow
def test_clicking_an_answer_shows_its_prompt_with_the_answer_marked(study, tmp_path, chrome):
    shutil.copytree(study.home, tmp_path / "home")
    port = unused_port()
    server = start(tmp_path / "home", "dashboard", "--port", str(port), "--no-refresh")
    try:
        assert server.stdout is not None
        link = server.stdout.readline().split()[0]
        assert f":{port}/" in link
        page = chrome.new_page(viewport={"width": 1280, "height": 1500})
        wait_until(lambda: listens(port))
        page.goto(link)
        page.wait_for_url(f"http://127.0.0.1:{port}/")
        page.goto(f"http://127.0.0.1:{port}/answers")
        page.get_by_text("Select a row for the whole answer").wait_for()

        def clicked() -> bool:
            page.get_by_test_id("stDataFrame").last.click(position={"x": 18, "y": 55})
            page.wait_for_timeout(5000)  # a click before the table is drawn selects nothing
            # A second click would end the selection, and with it the building of the prompt.
            begun = page.get_by_text("Whole prompt"), page.get_by_text("Building the prompts")
            return any(one.is_visible() for one in begun)

        wait_until(clicked)
        page.get_by_text("Whole prompt").wait_for()
        box = page.get_by_role("region", name="Prompt")
        ids = study.recorded[study.cell("needle")][0]
        key = next(token for token in ids if token >= 256) - 256
        assert box.locator("mark").all_inner_texts() == [f"<key-{key // 16}-{key % 16:02d}>"]
        assert box.inner_text().endswith(f"<query-{ids[-1] - 256 - 128}>")
        with page.expect_download() as saved:
            page.get_by_text("Token ids", exact=True).click()
        assert json.loads(saved.value.path().read_text(encoding="utf-8")) == ids
    finally:
        server.kill()
        server.wait()
        if server.stdout is not None:
            server.stdout.close()


class LeftError(Exception):
    """The exception that Streamlit raises in a page that the viewer leaves."""


@pytest.fixture
def pid(monkeypatch, tmp_path) -> Callable[[], str]:
    """Replace Python by a program that takes long; return its id, or "" before its start."""
    program = tmp_path / "slow"
    program.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\nexec sleep 600\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setattr(prompts.sys, "executable", str(program))
    monkeypatch.setattr(prompts, "_POLL_SECONDS", 0.05)
    file = tmp_path / "pid"
    return lambda: file.read_text(encoding="utf-8").strip() if file.is_file() else ""


def test_leaving_the_page_kills_the_process(tmp_path, pid):
    def leave(_: float) -> None:
        if pid():
            raise LeftError

    with pytest.raises(LeftError):
        build_prompts(tmp_path, "0" * 12, 0, leave)
    assert not psutil.pid_exists(int(pid()))


def test_a_process_that_takes_too_long_is_killed_and_the_command_named(tmp_path, monkeypatch, pid):
    def late(_: float) -> None:
        if pid():
            monkeypatch.setattr(prompts, "MOST_SECONDS", 0)

    answer = build_prompts(tmp_path, "0" * 12, 3, late)
    assert isinstance(answer, str)
    assert "`lce prompt 000000000000 3`" in answer
    assert not psutil.pid_exists(int(pid()))


def test_a_process_that_fails_silently_is_reported_with_its_exit_code(tmp_path, monkeypatch):
    monkeypatch.setattr(prompts.sys, "executable", "/bin/false")
    reason = build_prompts(tmp_path, "0" * 12, 0, lambda _: None)
    assert isinstance(reason, str)
    assert reason.endswith("exit code 1")


TEXTS = st.text(alphabet="ab <>&*_`\x1b\n", min_size=0, max_size=40)


@given(st.lists(TEXTS, min_size=1, max_size=4), st.integers(0, 4), st.sampled_from((1, 700)))
def test_an_excerpt_is_the_escaped_text_with_the_size_of_each_gap(parts, num_places, times):
    needle, places, text = "<b>x</b>", [], ""
    for number, part in enumerate(parts):
        text += part * times
        if number < num_places:
            places.append((len(text), len(text) + len(needle)))
            text += needle
    html = as_html(text, places)
    assert html.count("<mark>&lt;b&gt;x&lt;/b&gt;</mark>") == len(places)
    assert not re.search(r"<(?!/?mark>|/?i>)", html)
    gaps = [int(gap.replace(",", "")) for gap in re.findall(r"<i>\[([\d,]+) char", html)]
    plain = re.sub(r"\n<i>\[[\d,]+ characters are not shown here\]</i>\n", "", html)
    plain = unescape(re.sub(r"</?mark>", "", plain)).replace("\N{SYMBOL FOR ESCAPE}", "\x1b")
    kept = shown(len(text), places)
    assert plain == "".join(text[first:last] for first, last in kept)
    assert len(plain) + sum(gaps) == len(text)
    assert (gaps == []) == (len(kept) == 1)


def test_a_long_text_is_shortened_to_start_marks_and_end():
    length = 10 * WHOLE
    assert shown(length, [(20_000, 20_010), (20_400, 20_410)]) == [
        (0, BEGINNING),
        (20_000 - AROUND, 20_410 + AROUND),
        (length - END, length),
    ]
    assert shown(WHOLE, [(5, 6)]) == [(0, WHOLE)]
