"""`lce prompt`: the text alone on standard output, what it is on standard error, or all as JSON."""

import json

import pytest
from typer.testing import CliRunner, Result

from lce.cli import app
from tests.support.asked_cells import LENGTH, AskedStudy


@pytest.fixture(scope="module")
def study(made_once) -> AskedStudy:
    return AskedStudy.of(made_once)


def asked(study: AskedStudy, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["prompt", *arguments], env={"LCE_HOME": str(study.home)})


def test_the_text_stands_alone_so_that_it_can_be_piped(study):
    cell = study.cell("passkey")
    found = asked(study, cell, "1")
    assert found.exit_code == 0, found.output
    given = study.recorded[cell][1]
    assert found.stdout == bytes(given).decode() + "\n"
    assert f"{len(given):,} tokens, {len(given):,} characters" in found.stderr
    assert " a right answer 2 times" in found.stderr


def test_json_has_the_ids_and_where_the_answer_stands(study):
    cell = study.cell("needle")
    found = json.loads(asked(study, cell, "9", "--json").stdout)
    (prompt,) = found["prompts"]
    assert prompt["ids"] == study.recorded[cell][9]
    assert len(prompt["ids"]) == LENGTH - 1
    ((first, last),) = prompt["places"]
    assert prompt["text"][first:last] == found["sample"]["reference"]
