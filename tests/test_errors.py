"""Every message of ours is provoked at least once, and has its three parts.

Strategy: the places that make errors are read from the source; each has a provocation in
tests/errors, and a record of where errors are made says whether it was hit.
"""

from __future__ import annotations

import copy
import pickle
import re
from pathlib import Path

import pytest

from lce_core import errors
from lce_core.errors import LceError, SpecError, StepsFailedError, StudyIncompleteError
from tests.errors import (
    of_attention,
    of_benchmark_data,
    of_benchmarks,
    of_catalog,
    of_checkpoints,
    of_data,
    of_flows,
    of_methods,
    of_models,
    of_prompts,
    of_short_context,
    of_store,
    of_study,
    of_tasks,
    of_training,
)
from tests.support.errors.error_sites import Site, foreign_raises, sites
from tests.support.errors.provocations import Place, Provocation, recorded

PROVOCATIONS: list[Provocation] = [
    *of_attention.PROVOCATIONS,
    *of_benchmark_data.PROVOCATIONS,
    *of_benchmarks.PROVOCATIONS,
    *of_catalog.PROVOCATIONS,
    *of_checkpoints.PROVOCATIONS,
    *of_data.PROVOCATIONS,
    *of_flows.PROVOCATIONS,
    *of_methods.PROVOCATIONS,
    *of_models.PROVOCATIONS,
    *of_prompts.PROVOCATIONS,
    *of_short_context.PROVOCATIONS,
    *of_store.PROVOCATIONS,
    *of_study.PROVOCATIONS,
    *of_tasks.PROVOCATIONS,
    *of_training.PROVOCATIONS,
]
NOT_PROVOKED: frozenset[str] = frozenset()


@pytest.mark.parametrize(
    "provocation",
    [
        pytest.param(
            one,
            marks=[pytest.mark.slow] if one.slow else [],
            id=f"{one.file.removesuffix('.py')}-{one.says}",
        )
        for one in PROVOCATIONS
    ],
)
def test_a_provocation_raises_the_message_it_claims(
    provocation: Provocation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = provocation.site()
    with recorded(monkeypatch) as made, pytest.raises(LceError) as raised:
        provocation.call(Place(tmp_path, monkeypatch))
    error = raised.value
    assert any(file == site.file and site.line <= line <= site.end for file, line in made)
    assert type(error).__name__ == site.kind
    assert site.matches(error), f"{error} is not what {site.name} says"
    assert all(part.strip() for part in error.parts[:4])
    first = str(error).removesuffix(f":\n{error.details}")
    assert first == f"{error.where}: got {error.got}; expected {error.expected}; {error.remedy}"


def test_every_place_that_makes_an_error_is_provoked() -> None:
    provoked = {provocation.site().name for provocation in PROVOCATIONS}
    assert {site.name for site in sites()} - provoked == NOT_PROVOKED


@pytest.mark.parametrize("site", sites(), ids=lambda site: f"{site.file}:{site.line}")
def test_a_template_is_a_phrase_of_its_own(site: Site) -> None:
    for part in (site.expected, site.remedy):
        assert not re.fullmatch(r"\{[\w.]*\}", part), "nothing but a variable"
        assert not part.endswith(".")
    assert re.match(r"[a-z{]", site.remedy), "an imperative in lower case"


def test_every_class_of_the_family_is_raised_somewhere() -> None:
    kinds = {one for one in vars(errors).values() if isinstance(one, type)}
    ours = {one.__name__ for one in kinds if issubclass(one, LceError)} - {"LceError"}
    assert {site.kind for site in sites()} == ours


def test_errors_of_others_are_raised_only_where_a_caller_needs_their_class() -> None:
    assert sorted(foreign_raises()) == [
        "lce/commands/keeping.py: typer.Exit",
        "lce/commands/keeping.py: typer.Exit",
        "lce/commands/planning.py: typer.Exit",
        "lce/commands/plugins.py: typer.Exit",
        "lce/commands/results.py: typer.Exit",
        "lce/commands/services.py: typer.Exit",
        "lce_core/contracts/method_trials.py: AssertionError",
        "lce_core/contracts/methods.py: AssertionError",
        "lce_core/corpora/streamed.py: ConnectionError",
        "lce_core/store/odd_files.py: OSError",
        "lce_core/store/odd_files.py: ValueError",
        "lce_core/store/odd_files.py: ValueError",
        "lce_core/store/planned.py: ValueError",
        "lce_core/store/planned.py: ValueError",
        # Readers of records catch OSError and ValueError alike; SealError says which damage it is.
        "lce_core/store/records.py: SealError",
        "lce_core/store/records.py: ValueError",
        "lce_core/store/records.py: ValueError",
        "lce_core/study/plain_yaml.py: yaml.composer.ComposerError",
        "lce_core/study/plain_yaml.py: yaml.constructor.ConstructorError",
        "lce_core/study/plain_yaml.py: yaml.constructor.ConstructorError",
        "lce_core/study/plain_yaml.py: yaml.constructor.ConstructorError",
        "lce_core/training/checkpoints/points.py: OSError",
        "lce_core/training/launching.py: MemoryError",
        "lce_core/training/launching.py: OSError",
        "lce_core/training/launching.py: torch.OutOfMemoryError",
        "tasks/ray_engine/cluster.py: ConnectionError",
    ]


@pytest.mark.parametrize(
    "error",
    [
        SpecError("a.yaml: seeds", [-1], "seeds from 0", "choose others"),
        StepsFailedError("train-yarn", [{"class": "data", "error": "DataError", "message": "m"}]),
        StudyIncompleteError("toy", {"train-yarn": "data: gone"}, num_blocked=2),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_cross_processes_as_they_are(error: LceError) -> None:
    for same in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(same) is type(error)
        assert (str(same), same.parts, vars(same)) == (str(error), error.parts, vars(error))
    restored = errors.restored(type(error).__name__, error.parts)
    assert str(restored) == str(error)


def test_a_list_of_failures_follows_the_message_line_by_line() -> None:
    error = StudyIncompleteError("toy", {"b": "second", "a": "first"}, num_blocked=2)
    assert str(error).splitlines() == [
        "toy: got 2 failed units; expected every unit done;"
        " correct what they name, then run the study again:",
        "  a: first",
        "  b: second",
        "  and 2 units that wait for these",
    ]
