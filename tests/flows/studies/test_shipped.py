"""The comments, deployments and documents of shipped studies; and what no toy study runs."""

import re

import pytest

from flows.settings import shipped_studies, study_path
from lce_core.benchmarks import BENCHMARKS
from lce_core.methods import METHODS
from lce_core.study.spec import StudySpec
from lce_core.study.study_file import load_study
from tests.support.repository import ROOT

NEEDS_DATA = "reads a data set from a folder"
BENCHMARKS_LEFT_OUT = {
    "longbench": ("understanding", NEEDS_DATA),
    "longbench_v2": ("understanding", NEEDS_DATA),
    "mrcr": ("retrieval", NEEDS_DATA),
    "multi_key": ("retrieval", "asks the keys of `multi_turn`, without the conversation"),
    "nolima": ("reasoning", NEEDS_DATA),
    "perplexity_documents": ("text", "measures what `perplexity` does, over whole documents"),
    "short_context": ("understanding", NEEDS_DATA),
}
"""Shipped benchmarks that no toy study runs: kind and reason."""


def comment(name: str) -> str:
    lines = study_path(name).read_text(encoding="utf-8").splitlines()
    end = next(index for index, line in enumerate(lines) if not line.startswith("#"))
    return " ".join(line.removeprefix("#").removesuffix("\\").strip() for line in lines[:end])


@pytest.mark.parametrize("name", shipped_studies())
def test_a_study_begins_with_the_data_it_reads_and_commands_that_run_it(name):
    study = load_study(study_path(name))
    read = {
        data_set.name
        for entry in study.benchmarks
        for task in entry.tasks
        for data_set in entry.benchmark.reads(task)
    }
    folder = getattr(study.corpus, "folder", None)
    assert set(re.findall(r"--data-folder (\w+)=", comment(name))) == read | {folder} - {None}
    assert set(re.findall(r"lce run ([\w-]+)", comment(name))) <= {name}


def test_the_documents_list_every_shipped_study():
    part = (ROOT / "docs" / "studies.md").read_text(encoding="utf-8")
    rows = part.partition("## Shipped studies")[2].partition("\n## ")[0]
    assert set(re.findall(r"^\| \[([\w-]+)\]", rows, flags=re.MULTILINE)) == set(shipped_studies())


@pytest.fixture(scope="module")
def studies() -> list[StudySpec]:
    return [
        load_study(study_path(name))
        for name in ("toy", "toy-beyond", "ramps", "learned-frequencies")
    ]


def test_every_method_is_in_a_toy_study(studies):
    run = {variant.method.plugin_name for study in studies for variant in study.methods}
    assert set(METHODS.names()) - run == set()


def test_every_benchmark_is_in_a_toy_study(studies):
    run = {entry.benchmark.plugin_name for study in studies for entry in study.benchmarks}
    left_out = set(BENCHMARKS.names()) - run
    kinds = {name: BENCHMARKS.load(name).kind for name in left_out}
    assert kinds == {name: kind for name, (kind, _) in BENCHMARKS_LEFT_OUT.items()}
    for name in left_out:
        needs_data = BENCHMARKS_LEFT_OUT[name][1] == NEEDS_DATA
        one = BENCHMARKS.load(name)()
        assert needs_data == all(one.reads(task) for task in one.tasks())
    assert {entry.benchmark.kind for study in studies for entry in study.benchmarks} == {
        *("text", "retrieval", "reasoning", "learning")
    }


CLAIMS = {
    "approximate attention loses to exact fine-tuned attention": ("approximate", "exact tuned"),
    "exact fine-tuned attention beats exact frozen attention": ("exact frozen", "exact tuned"),
    "beyond the tuned context only NTK and CLEX generalise": ("exact tuned", "exact tuned"),
    "extrapolation beyond the tuned context remains challenging": ("exact tuned", "exact tuned"),
    "perplexity predicts the scores of exact fine-tuned methods": (None, "exact tuned"),
    "perplexity predicts downstream scores": (None, "exact frozen"),
}
"""Claims of LCEG: kinds of the methods that lose, and of those that win or are ordered."""


@pytest.mark.parametrize("name", shipped_studies())
def test_claims_of_lceg_are_about_the_methods_and_lengths_that_they_name(name):
    study = load_study(study_path(name))
    kinds = {
        one.name: f"exact {'tuned' if one.is_tuned else 'frozen'}"
        if one.method.exact_attention
        else "approximate"
        for one in study.methods
    }
    exact = [one for one in kinds if kinds[one] != "approximate"]
    for entry in study.expects:
        if not entry.claim or not entry.claim.startswith("LCEG: "):
            continue
        claim = entry.claim.removeprefix("LCEG: ")
        losing, winning = CLAIMS[claim]
        if entry.predicts:
            assert {kinds[one] for one in entry.among or exact} == {winning}, entry
            continue
        losers, winners = (entry.subject,), entry.others
        if entry.better:
            losers, winners = winners, losers
        assert {kinds[one] for one in losers} == {losing}, entry
        assert {kinds[one] for one in winners} == {winning}, entry
        assert "beyond" not in claim or min(entry.lengths) > study.target_context, entry


@pytest.mark.parametrize("name", shipped_studies())
def test_a_difference_that_a_sentence_states_is_the_margin_that_is_tested(name):
    points = {"a": 1, "one": 1, "two": 2}
    for entry in load_study(study_path(name)).expects:
        stated = re.search(r"([\d.]+) (%|nats)|\b(a|one|two) points?\b", entry.says or "")
        if stated:
            number, unit, words = stated.groups()
            margin = f"{number} {unit}" if unit else f"{points[words] / 100} accuracy"
            assert entry.within == margin, entry.says
