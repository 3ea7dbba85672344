"""Shipped studies ask what the tables of their papers print, of methods trained as those say.

Cells and trainings are copied from the papers; plans are compiled on stand-ins of the data.
"""

import functools
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import product

import pytest

from flows.settings import shipped_studies, study_path
from lce_core.methods import Method
from lce_core.rope import ContextLengths, RopeGeometry
from lce_core.study.plan import PlannedCell, StudyPlan, compile_study
from lce_core.study.step_kinds import CellSpec, FinetuneSpec, spec_of
from lce_core.study.study_file import load_study
from tests.support.shrunk_studies import study_folders

pytestmark = pytest.mark.slow

K = 1024
BEYOND_REACH = r"eval length \d+ exceeds the \d+ tokens that \w+ supports"
"""A reason for which a cell may be unavailable where all data are there."""
NO_WEIGHTS = r"checkpoint \w+: got no folder of that name; .*"
"""The other one: the weights of a large model, which others published, are not."""
DOUBLED = tuple(k * K for k in (4, 8, 16, 32, 64, 128))
LENGTHS = (2 * K, *DOUBLED[:-1])
LEADERBOARD = ("arc_challenge", "hellaswag", "mmlu", "truthfulqa_mc2")
NEEDLES = (
    *("niah_single_1", "niah_single_2", "niah_single_3"),
    *("niah_multikey_1", "niah_multikey_2", "niah_multikey_3"),
    *("niah_multivalue", "niah_multiquery"),
)
OTHER_RULER = ("vt", "cwe", "fwe", "qa_1", "qa_2")
RULER = (*NEEDLES, *OTHER_RULER)


def upto(last: int, step: int) -> tuple[int, ...]:
    return tuple(k * K for k in range(step, last + 1, step))


@dataclass(frozen=True)
class Asked:
    place: str
    benchmark: str
    tasks: tuple[str, ...]
    variants: tuple[str, ...]
    lengths: tuple[int, ...]

    def cells(self) -> set[tuple[str, str, str, int]]:
        return set(product(self.variants, [self.benchmark], self.tasks, self.lengths))


YARN = ("yarn_16-tuned", "yarn_32-tuned")
PROOF_PILE = ("perplexity_documents", ("proof_pile",))
GOVREPORT = ("perplexity_documents", ("govreport",))
YARN_LLAMA2 = (
    Asked("Table 1", *PROOF_PILE, YARN, (8 * K, 16 * K, 32 * K, 64 * K, 128 * K)),
    Asked("Table 7", *PROOF_PILE, YARN, (8192, 32768, 65536, 98304, 131072)),
    Asked("Table 8", *GOVREPORT, YARN, (32 * K,)),
    Asked("Table 9", "passkey", ("single",), YARN, upto(128, 8)),
    Asked("Tables 3, 10", "short_context", LEADERBOARD, ("none", *YARN), (4096,)),
)
FOUR = ("pi", "ntk_aware", "ntk_by_parts", "yarn")
FOUR_TUNED = tuple(f"{name}-tuned" for name in FOUR)
HARPE_TUNED = (
    *("pi-tuned", "abf_single_stage-tuned", "abf_multi_stage-tuned"),
    *("yarn-tuned", "harpe-tuned"),
)
SCHEMES = (
    *(f"harpe_peak_valley_stride_{stride}k-tuned" for stride in (10, 20, 40, 50)),
    *("harpe-tuned", "harpe_uniform_ascending-tuned", "harpe_uniform_descending-tuned"),
)
BASES = tuple(f"base_{base}-tuned" for base in ("1e4", "2e5", "6_4e5", "1e6"))
METHODS_1_2 = ("rope_base_method_1-tuned", "rope_base_method_2-tuned")
ALL_BASES = ("small_base-tuned", *BASES, *METHODS_1_2)
TABLES = {
    "yarn-llama2-7b": YARN_LLAMA2,
    "yarn-llama2-13b": YARN_LLAMA2,
    "yarn-llama2-7b-8k": (
        Asked("Table 6", *PROOF_PILE, ("none",), (2048, 4096)),
        Asked(
            "Table 6",
            *PROOF_PILE,
            ("pi", "yarn", "pi-tuned", "yarn-tuned"),
            (2048, 4096, 6144, 8192),
        ),
    ),
    "yarn-llama-7b-ablation": (
        Asked("Table 5, none", *PROOF_PILE, ("none",), (2048,)),
        *(
            Asked(
                f"Table 5, scale {scale}",
                *PROOF_PILE,
                tuple(f"{name}_{scale}" for name in FOUR),
                (2048, 4096, 8192, 16384)[: scale.bit_length()],
            )
            for scale in (2, 4, 8)
        ),
        Asked(
            "Table 5, scale 16, dynamic and tuned",
            *PROOF_PILE,
            (*FOUR, *(f"dynamic_{name}" for name in FOUR), *FOUR_TUNED),
            (2048, 4096, 8192, 16384, 32768),
        ),
        Asked("Figure 3", "passkey", ("single",), FOUR_TUNED, (2048, 4096, 8192, 16384, 32768)),
        Asked("Table 2", "short_context", LEADERBOARD, ("none", *FOUR_TUNED), (2048,)),
    ),
    "harpe-llama2-7b": (
        Asked("Table 3", *PROOF_PILE, ("none", *HARPE_TUNED), upto(128, 2)),
        # the paper's mean goes on to 131,072; positions of Self-Extend repeat from 99,328 on
        Asked("Table 3", *PROOF_PILE, ("self_extend",), upto(96, 2)),
        Asked("Table 3", *GOVREPORT, ("none", "self_extend", *HARPE_TUNED), (32 * K,)),
        Asked("Tables 1, 4, 8", "ruler", NEEDLES, HARPE_TUNED, DOUBLED),
        Asked("Tables 4, 8", "ruler", NEEDLES, ("self_extend",), DOUBLED[:-1]),
        Asked("Tables 4, 7", "ruler", RULER, ("none",), (4096,)),
        Asked("Table 7", "ruler", OTHER_RULER, ("harpe-tuned",), DOUBLED),
        Asked(
            "Tables 1, 5",
            "short_context",
            ("mmlu", "hellaswag", "arc_challenge", "piqa", "triviaqa"),
            ("abf_single_stage-tuned", "abf_multi_stage-tuned", "harpe-tuned"),
            (4096,),
        ),
    ),
    "harpe-llama2-7b-bases": (
        Asked("Table 6", "ruler", NEEDLES, ("none",), (4096,)),
        Asked("Table 6", "ruler", NEEDLES, SCHEMES, DOUBLED),
    ),
    "rope-base-llama2-7b": (
        Asked("Table 4", "long_eval", ("lines",), METHODS_1_2, (15 * K, 30 * K)),
        Asked(
            "Figures 3, 6, 10, 11",
            "long_eval",
            ("lines",),
            ALL_BASES,
            (1 * K, 2 * K, 4 * K, 8 * K, 15 * K, 30 * K),
        ),
        Asked("Figures 3, 6", "perplexity_documents", ("pg19",), ALL_BASES, (2 * K, *DOUBLED)),
        Asked("Figures 3, 10, 11", "needle", ("single",), ALL_BASES, (2 * K, *DOUBLED[:4])),
    ),
}


@dataclass(frozen=True)
class Trained:
    """Runs of a variant, in order: training steps, rows a step, tokens a row."""

    runs: tuple[tuple[int, int, int], ...]
    table: Callable[[Method, RopeGeometry, ContextLengths], float] = field(repr=False)
    expected: float
    start: str | None = None


def divisor(method: Method, geometry: RopeGeometry, lengths: ContextLengths) -> float:
    table = method.rope_table(geometry, lengths)
    return float(geometry.inv_freq()[-1] / table.inv_freq[..., -1])


def rope_base(method: Method, geometry: RopeGeometry, lengths: ContextLengths) -> float:
    """The base that gives the slowest frequency of the first head."""
    slowest = method.rope_table(geometry, lengths).inv_freq.reshape(-1, geometry.num_pairs)[0, -1]
    return float(slowest ** (-geometry.head_dim / (geometry.head_dim - 2)))


SIX_BILLION = 1430
"""Whole steps of 32 rows of 131,072 tokens."""
HARPE_RUN = ((SIX_BILLION, 32, 131072),)
ROPE_RUN = ((1000, 128, 32768),)
TRAININGS = {
    **{
        study: {
            "yarn_16-tuned": Trained(((400, 64, 65536),), divisor, 16.0),
            "yarn_32-tuned": Trained(((200, 64, 65536),), divisor, 32.0, start="yarn_16-tuned"),
        }
        for study in ("yarn-llama2-7b", "yarn-llama2-13b")
    },
    "yarn-llama2-7b-8k": {
        "pi-tuned": Trained(((1000, 64, 8192),), divisor, 2.0),
        "yarn-tuned": Trained(((400, 64, 8192),), divisor, 2.0),
    },
    "yarn-llama-7b-ablation": {
        name: Trained(((400, 64, 32768),), divisor, 16.0) for name in FOUR_TUNED
    },
    "harpe-llama2-7b": {
        "pi-tuned": Trained(HARPE_RUN, divisor, 32.0),
        "yarn-tuned": Trained(HARPE_RUN, divisor, 32.0),
        "abf_single_stage-tuned": Trained(HARPE_RUN, rope_base, 5e6),
        "abf_multi_stage-tuned": Trained(
            ((476, 128, 32768), (476, 64, 65536), (476, 32, 131072)), rope_base, 5e6
        ),
        "harpe-tuned": Trained(HARPE_RUN, rope_base, 1e6),
    },
    "harpe-llama2-7b-bases": {
        name: Trained(HARPE_RUN, rope_base, 5e6 if "descending" in name else 1e6)
        for name in SCHEMES
    },
    "rope-base-llama2-7b": {
        **{
            name: Trained(ROPE_RUN, rope_base, base)
            for name, base in zip(
                ("small_base-tuned", *BASES, "rope_base_method_1-tuned"),
                (500, 1e4, 2e5, 6.4e5, 1e6, 5e6),
                strict=True,
            )
        },
        "rope_base_method_2-tuned": Trained(ROPE_RUN, divisor, 8.0),
    },
}


@pytest.fixture(scope="module")
def planned(tmp_path_factory) -> Callable[[str], StudyPlan]:
    @functools.cache
    def plan(name: str) -> StudyPlan:
        study = load_study(study_path(name))
        return compile_study(study, study_folders(study, tmp_path_factory.mktemp(name)))

    return plan


def name_of(cell: PlannedCell) -> str:
    return cell.method if cell.frozen else f"{cell.method}-tuned"


@pytest.mark.parametrize("study", TABLES)
def test_a_study_asks_what_its_tables_print_and_nothing_else(study, planned):
    assert {cell.unavailable for cell in planned(study).cells} == {None}
    asked = [
        (name_of(cell), cell.benchmark, cell.task, cell.eval_length)
        for cell in planned(study).cells
    ]
    printed = {cell: part.place for part in TABLES[study] for cell in part.cells()}
    assert {cell: place for cell, place in printed.items() if cell not in asked} == {}
    assert [cell for cell in asked if cell not in printed] == []


@pytest.mark.parametrize("study", TRAININGS)
def test_methods_are_trained_as_their_paper_says(study, planned):
    plan = planned(study)
    ends = {name_of(c): c for c in plan.cells if c.checkpoint is not None}
    assert set(ends) == set(TRAININGS[study])
    for name, trained in TRAININGS[study].items():
        cell = ends[name]
        step, runs, specs = cell.checkpoint, [], []
        while step is not None:
            spec = spec_of(step)
            assert isinstance(spec, FinetuneSpec)
            rows = spec.training.tokens_per_step / spec.row_length
            runs.append((spec.num_steps, rows, spec.row_length))
            specs.append(spec)
            base = step.parents.get("base")
            step = plan.steps[base] if base else None
            if trained.start and base:
                assert step is ends[trained.start].checkpoint
                step = None
        assert tuple(reversed(runs)) == trained.runs, name
        assert cell.step is not None
        evaluated = spec_of(cell.step)
        assert isinstance(evaluated, CellSpec)
        for spec in (specs[0], evaluated):
            geometry, target = spec.base_model.geometry, spec.target_context
            lengths = ContextLengths(geometry.trained_context, target, target)
            found = trained.table(spec.method, geometry, lengths)
            assert found == pytest.approx(trained.expected, rel=1e-6), name


@pytest.mark.parametrize("name", shipped_studies())
def test_with_all_data_nothing_is_out_of_reach_but_for_a_method(name, planned):
    plan = planned(name)
    assert plan.cells
    reasons = {cell.unavailable for cell in plan.cells if cell.unavailable}
    assert [
        reason for reason in reasons if not re.fullmatch(f"{BEYOND_REACH}|{NO_WEIGHTS}", reason)
    ] == []


def test_lceg_on_llama_has_every_cell_of_its_tables(planned):
    plan = planned("lceg-llama2-7b")
    others = ["ntk_frozen", "self_extend", "lm_infinite", "pi", "ntk_32k", "yarn", "clex"]
    others += ["longlora", "landmark", "ntk_64k"]
    table = {  # benchmark: (methods, tasks, lengths) of Tables 2, 3 and 12-16, 4 and 11, 1
        "perplexity": [(["none", *others], ["pg19", "proof_pile"], LENGTHS)],
        "ruler": [(["none"], RULER, [4 * K]), (others, RULER, LENGTHS[1:])],
    }
    cells = {(c.benchmark, c.method, c.task, c.eval_length) for c in plan.cells}
    for benchmark, blocks in table.items():
        for block in blocks:
            assert {(benchmark, *cell) for cell in product(*block)} <= cells
    count = Counter((c.benchmark, c.method, c.eval_length) for c in plan.cells)
    for benchmark, tasks in (("longbench", 16), ("many_shot", 15)):
        assert count[benchmark, "none", 4 * K] == tasks
        assert all(count[benchmark, method, 32 * K] == tasks for method in others)
    needle = {c.eval_length for c in plan.cells if c.benchmark == "needle" and c.method == "pi"}
    # 40 lengths from 1,000 to 128,000, those below 64,000.
    assert needle == {round(1000 + i * 127000 / 39) for i in range(40)} & set(range(64000))
    assert len(needle) == 20
    trained = {(c.method, c.train_length) for c in plan.cells}
    rows = dict.fromkeys(("none", "ntk_frozen", "self_extend", "lm_infinite"), 4 * K)
    rows |= dict.fromkeys(("ntk_64k", "ntk_64k_2b"), 64 * K)
    assert trained == {(method, rows.get(method, 32 * K)) for method, _ in trained}


def test_lceg_on_phi_has_every_cell_of_its_tables(planned):
    plan = planned("lceg-phi2")
    others = ["ntk_frozen", "self_extend", "pi", "ntk_32k", "clex", "ntk_64k"]
    expected = {  # Tables 5 and 6
        *product(["none", *others], ["perplexity"], ["proof_pile"], LENGTHS),
        *product(others, ["ruler"], RULER[:-1], LENGTHS),
        *product(["none"], ["ruler"], RULER[:-1], [2 * K]),
    }
    assert {(c.method, c.benchmark, c.task, c.eval_length) for c in plan.cells} == expected


def test_runs_of_lceg_take_the_steps_that_its_code_takes(planned):
    plan = planned("lceg-llama2-7b")
    runs = {step.name: step.spec for step in plan.steps.values() if step.kind == "finetune"}
    found = {
        name.removeprefix("llama2_7b-").removesuffix("-tuned-s0"): (
            spec["num_steps"],
            spec["training"]["tokens_per_step"] // spec["row_length"],
        )
        for name, spec in runs.items()
    }
    ordinary = dict.fromkeys(("pi", "ntk_32k", "yarn", "clex", "longlora"), (120, 256))
    assert found == ordinary | {
        "landmark": (7693, 256 * 512 // 32768),  # sequences of 512 tokens
        "ntk_64k": (60, 256),
        "ntk_64k_2b": (120, 256),
        "longlora_own": (1000, 64),
    }
