"""The search for LongRoPE's factors, on random models and on losses that tests make up."""

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import cross_entropy

from catalog.extraction import extract
from lce_core.contracts.tiny_models import TARGET, TRAINED, Tiny, stock, tokens
from lce_core.errors import SpecError
from lce_core.evaluation.parameter_search import (
    TRIALS_FILE,
    Samples,
    draw_samples,
    search_parameters,
)
from lce_core.evidence import LLAMA2_7B
from lce_core.extension.extending import extend
from lce_core.methods import METHODS, Method
from lce_core.methods.longrope.search import FactorSearch, critical_pairs
from lce_core.rope import ContextLengths, RopeGeometry, Scaling
from lce_core.runners import Runner
from lce_core.study.step_kinds import SearchSpec, step_cost
from tests.support.architectures import save
from tests.support.cells import TOY
from tests.support.small_study import Small, written_text
from tests.support.training_jobs import InterruptedRunError

SMALL = {"population": 8, "parents": 4, "mutations": 3, "crossovers": 3, "iterations": 4}
SCALE = TARGET / TRAINED


def longrope(**search: Any) -> Method:
    return METHODS.parse({"name": "longrope", "search": {**SMALL, **search}}, "test")


def texts() -> Samples:
    windows = tokens(TARGET, batch=2, seed=5).numpy()
    return Samples(windows, np.ones((2, TARGET - 1), dtype=np.bool_))


def found_by(method: Method, folder: Path, *, limit: int | None = None) -> tuple[Any, list[int]]:
    """The result of a search of the tiny model in this folder, and its progress reports."""
    reports: list[int] = []

    def report(event: Any) -> None:
        reports.append(event["done"])
        if limit is not None and len(reports) > limit:
            raise InterruptedRunError

    model = extend(stock(Tiny()), Tiny(), method, target=TARGET)
    out = folder / "out"
    out.mkdir(parents=True, exist_ok=True)
    found = search_parameters(
        method, model, texts(), batch_tokens=4096, progress=folder / "progress", out=out,
        report=report,
    )  # fmt: skip
    return found, reports


def stock_loss(factors: list[float]) -> float:
    """The same loss by a model of transformers, with longrope in its configuration."""
    model = stock(
        Tiny(), rope_type="longrope", long_factor=factors, short_factor=factors,
        factor=SCALE, original_max_position_embeddings=TRAINED,
    )  # fmt: skip
    ids = torch.from_numpy(texts().windows)
    with torch.no_grad():
        logits = model(ids).logits[:, :-1]
    return float(cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten()))


def initial_factors() -> list[list[float]]:
    """PI, NTK and YaRN for the tiny model: 4 pairs, base 1e4, a context of 16 tokens."""
    ntk = [SCALE ** (2 * i / 6) for i in range(4)]
    low = max(0, math.floor(8 * math.log(TRAINED / (32 * 2 * math.pi)) / (2 * math.log(1e4))))
    high = math.ceil(8 * math.log(TRAINED / (2 * math.pi)) / (2 * math.log(1e4)))
    ramp = [min(max((i - low) / (high - low), 0.0), 1.0) for i in range(4)]
    yarn = [1 / (part / SCALE + 1 - part) for part in ramp]
    return [[SCALE] * 4, ntk, yarn]


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> tuple[Any, Path]:
    """The result and the folder of a search that nothing interrupted."""
    folder = tmp_path_factory.mktemp("whole")
    return found_by(longrope(), folder)[0], folder


def test_the_search_beats_its_initial_individuals(whole, tmp_path):
    found, _ = whole
    losses = [stock_loss(factors) for factors in initial_factors()]
    assert found.start_loss == pytest.approx(min(losses), rel=1e-5)
    assert found.loss < found.start_loss
    assert found.loss == pytest.approx(stock_loss(found.parameters["long_factors"]), rel=1e-5)
    assert list(found.best) == sorted(found.best, reverse=True)
    assert found.best[-1] == found.loss
    assert found.parameters != found_by(longrope(seed=4), tmp_path)[0].parameters


@pytest.mark.parametrize("limit", [0, 1, 9])
def test_a_killed_search_continues(limit, whole, tmp_path):
    expected, folder = whole
    with pytest.raises(InterruptedRunError):
        found_by(longrope(), tmp_path, limit=limit)
    trials = tmp_path / "progress" / TRIALS_FILE
    before = trials.read_text().splitlines()
    assert len(before) == limit + 1
    with trials.open("a") as stream:
        stream.write('{"parameters": {"long_fac')  # a line that the kill cut short
    assert found_by(longrope(), tmp_path)[0] == expected
    written = (tmp_path / "out" / TRIALS_FILE).read_text()
    assert written == (folder / "out" / TRIALS_FILE).read_text()
    assert written.splitlines()[: limit + 1] == before
    assert len(written.splitlines()) == expected.num_trials


def test_a_continued_search_measures_no_loss_twice(whole, tmp_path):
    # A stored loss that no model would give shows that it is read, not measured.
    first = (whole[1] / "out" / TRIALS_FILE).read_text().splitlines()[0]
    (tmp_path / "progress").mkdir()
    stored = json.dumps({**json.loads(first), "loss": -1.0}) + "\n"
    (tmp_path / "progress" / TRIALS_FILE).write_text(stored)
    again, _ = found_by(longrope(), tmp_path)
    assert again.start_loss == again.loss == -1.0
    assert again.parameters["long_factors"] == [SCALE] * 4
    assert whole[0].loss > 0


geometries = st.builds(
    lambda pairs, theta, trained: RopeGeometry(2 * pairs, 2 * pairs, 1, 1, theta, trained),
    st.integers(2, 64),
    st.floats(1e3, 1e7),
    st.integers(64, 8192),
)


def tried(search: FactorSearch, geometry: RopeGeometry, scale: float) -> Iterator[list[float]]:
    target = round(scale * geometry.trained_context)
    lengths = ContextLengths(geometry.trained_context, target, target)
    rng = np.random.default_rng(0)
    seen: list[list[float]] = []

    def loss(parameters: Any) -> float:
        seen.append(parameters["long_factors"])
        return float(rng.random())

    search.run(geometry, lengths, loss)
    yield from seen


@given(geometries, st.sampled_from([2.0, 4.0, 32.0]), st.integers(0, 9))
def test_factors_never_decrease_and_stay_in_the_space_of_the_paper(geometry, scale, seed):
    search = FactorSearch(**SMALL, seed=seed)
    every = list(tried(search, geometry, scale))
    assert len({tuple(one) for one in every}) == len(every) <= search.max_trials
    for factors in every:
        assert len(factors) == geometry.num_pairs
        assert (np.diff(factors) >= 0).all()
        assert min(factors) >= 1
        assert max(factors) <= 1.25 * scale + 1e-6
    assert every[0] == [scale] * geometry.num_pairs


@given(geometries, st.sampled_from([2.0, 4.0, 32.0]), st.integers(0, 9))
def test_guided_by_needles_pairs_before_the_critical_one_follow_ntk(geometry, scale, seed):
    search = FactorSearch(guide="needles", **SMALL, seed=seed)
    candidates = critical_pairs(geometry)
    for factors in tried(search, geometry, scale):
        assert (np.diff(factors) >= 0).all()
        assert max(factors) <= 2 * scale + 1e-6
        assert any(
            follows_ntk(factors, critical, geometry) and factors[critical] >= scale - 1e-6
            for critical in candidates
        )


def follows_ntk(factors: list[float], critical: int, geometry: RopeGeometry) -> bool:
    """Whether one other base divides the frequencies of all pairs before the critical one."""
    exponent = critical / geometry.num_pairs
    base = (factors[critical] * geometry.theta**exponent) ** (1 / exponent)
    expected = [(base / geometry.theta) ** (i / geometry.num_pairs) for i in range(critical)]
    return bool(np.allclose(factors[:critical], expected, rtol=1e-6))


def test_critical_pairs_are_those_of_the_paper():
    # Section 2.2 and figure 4 of arXiv:2502.20082: the theoretical and the real critical pair.
    phi3_mini = critical_pairs(RopeGeometry(96, 96, 32, 32, 1e4, 2048))
    llama3_8b = critical_pairs(RopeGeometry(128, 128, 32, 8, 5e5, 8192))
    assert (phi3_mini[-1], llama3_8b[-1]) == (31, 35)
    assert 25 in phi3_mini
    assert 30 in llama3_8b
    # The pairs from 35 on of Llama-3.1 have an eighth of their frequency.
    scaled = RopeGeometry(128, 128, 32, 8, 5e5, 131072)
    multipliers = tuple(0.125 if pair > 34 else 1.0 for pair in range(64))
    llama31 = replace(scaled, scaling=Scaling("llama3", multipliers))
    turns = 131072 * llama31.inv_freq() / (2 * math.pi)
    assert critical_pairs(llama31)[-1] == np.flatnonzero(turns < 1)[0] == 39
    assert critical_pairs(scaled)[-1] == 49


def test_a_population_without_room_for_each_critical_pair_is_refused():
    geometry, lengths = LLAMA2_7B, ContextLengths(4096, 32768, 32768)
    count = len(critical_pairs(geometry))
    longrope(guide="needles", population=count).check(geometry, lengths)
    longrope(guide="perplexity").check(geometry, lengths)
    with pytest.raises(SpecError, match=rf"population: got {count - 1}; expected at least {count}"):
        longrope(guide="needles", population=count - 1).check(geometry, lengths)


class Text:
    domains = ("a", "b")

    def stream(self, domain: str) -> np.ndarray:
        start = 0 if domain == "a" else 100
        return (start + np.arange(1000) % 100).astype(np.uint32)


def drawn(**search: Any) -> Samples:
    return draw_samples(longrope(**search).open_search(), Text(), 256, TOY.tokenizer(None))


def test_texts_are_slices_of_the_domains_in_turn():
    samples = drawn(samples=3)
    assert samples.scored.all()
    expected = [Text().stream("a")[:256], Text().stream("b")[:256], Text().stream("a")[256:512]]
    np.testing.assert_array_equal(samples.windows, expected)


def test_only_answers_about_needles_count():
    samples = drawn(samples=4, guide="needles")
    tokenizer, numbers = TOY.tokenizer(None), set()
    for window, scored in zip(samples.windows, samples.scored, strict=True):
        text = tokenizer.decode(window)
        answer = tokenizer.decode(window[1:][scored])
        assert answer == f" {int(answer)}"
        assert text.index(answer) < 40
        assert text.endswith(f"The secret number is{answer}")
        numbers.add(answer)
    assert len(numbers) == 4


def test_models_with_key_tokens_are_asked_for_a_key():
    search = longrope(samples=4, guide="needles").open_search()
    samples = draw_samples(search, Text(), 64, TOY.tokenizer(None), TOY.keys)
    for window, scored in zip(samples.windows, samples.scored, strict=True):
        key, (query, answer) = window[0], window[-2:]
        assert key == answer
        assert 256 <= key < 384
        assert query == 384 + (key - 256) // 16
        assert scored.tolist() == [False] * 62 + [True]


def test_a_method_without_factors_works_with_those_of_yarn_until_the_search():
    geometry = RopeGeometry(8, 8, 4, 4, 1e4, TRAINED)
    table = longrope().rope_table(geometry, ContextLengths(TRAINED, TARGET, TARGET))
    expected = geometry.inv_freq() / np.array(initial_factors()[2])
    np.testing.assert_allclose(table.inv_freq, expected, rtol=1e-6)


def test_a_study_continues_a_killed_search_and_computes_cells_with_the_factors_found(tmp_path):
    small, trials = study(tmp_path), []

    def report(event: Any) -> None:
        if event.get("total") == 8 + 4 * 6:
            trials.append(event)
        if len(trials) == 11:
            raise InterruptedRunError

    small.store.prepare()
    steps = [*small.plan.steps.values()]
    search = next(step for step in steps if step.kind == SearchSpec.kind)
    runner = Runner(small.store, small.execution, report)
    for step in steps[: steps.index(search)]:
        runner.ensure(step)
    with pytest.raises(InterruptedRunError):
        runner.ensure(search)
    stored = (small.store.home / "progress" / search.id / TRIALS_FILE).read_text()
    assert len(stored.splitlines()) == 11
    small.run()
    assert (small.store.path(search) / TRIALS_FILE).read_text().startswith(stored)
    record = small.store.record(search)
    factors = record.result["parameters"]["long_factors"]
    cost = step_cost(search)
    assert cost.tokens == 2 * 1024 * (8 + 4 * 6)
    given_factors = study(tmp_path, {"name": "longrope", "long_factors": factors})
    given_factors.run()
    assert nll_of(small) == nll_of(given_factors)
    small.store.studies.save_plan("shared", small.plan.to_json(), "mine.yaml")
    (row,) = extract(small.store)["search"].to_pylist()
    assert (row["search"], row["loss"]) == (search.id, record.result["loss"])
    assert json.loads(row["parameters"]) == {"long_factors": factors}


def study(folder: Path, method: Any = None) -> Small:
    texts, model = folder / "text", folder / "model"
    if not texts.is_dir():
        texts.mkdir()
        written_text(texts)
        save("llama", model, max_position_embeddings=512)
    chosen = method or {"name": "longrope", "search": {**SMALL, "samples": 2}}
    asked = [{"name": "perplexity", "profile": "fast", "lengths": [1024], "domains": ["code"]}]
    return Small(
        model, {"text": texts}, folder / "home", methods=[chosen], benchmarks=asked,
        target_context=1024, evaluation={"held_out_tokens": 2048},
    )  # fmt: skip


def nll_of(small: Small) -> list[float]:
    record: Any = small.store.record(small.plan.cells[0].step)
    return [score["value"] for score in record.result["scores"]]
