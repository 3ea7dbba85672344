"""Bad study files get one clear error each, naming file, key, value, rule and remedy.

Recipes give a study the values that their files cite, and leave no trace of themselves.
"""

import json
from typing import Any

import pytest
import yaml

from flows.settings import shipped_studies, study_path
from lce_core.errors import SpecError
from lce_core.recipe import Training, Upsampling
from lce_core.store.study_folders import amendments
from lce_core.study.plan import compile_study
from lce_core.study.spec import StudySpec
from lce_core.study.study_file import load_recipe, load_study, parse_study, recipe_names
from tests.support.toy_study import TOY


def edited(**changes: object) -> str:
    data = {key: value for key, value in {**TOY, **changes}.items() if value is not None}
    return yaml.safe_dump(json.loads(json.dumps(data)))  # without aliases


def refusal(text: str) -> str:
    with pytest.raises(SpecError) as caught:
        parse_study(text, "my.yaml")
    message = str(caught.value)
    assert message.startswith("my.yaml")
    return message


@pytest.mark.parametrize("name", shipped_studies())
def test_every_shipped_study_is_good_and_compiles(name):
    study = load_study(study_path(name))
    assert study.study == name
    assert compile_study(study, {}).cells


EXPECTED = {"better": "yarn-tuned", "than": ["pi", "none"], "benchmark": "passkey"}
NOT_WORSE: dict[str, Any] = {"better": None, "not_worse": "yarn-tuned"}
SHARED_BY_NONE = [
    EXPECTED | {"than": [other], "weight": weight} for weight, other in enumerate(("pi", "none"))
]
TWO = ["toy_llama", "smollm2_135m"]
FEW: list[Any] = ["none", "pi", {"name": "yarn", "tuned": True}]
PASSKEY = {"name": "passkey", "profile": "tiny", "lengths": [128, 256]}


def test_an_expectation_is_expanded_into_one_comparison_per_pair_and_length():
    study = parse_study(edited(expects=[EXPECTED], methods=FEW, benchmarks=[PASSKEY]), "my.yaml")
    pairs = [
        (one["method"], one["frozen"], one["other_method"], one["other_frozen"], one["eval_length"])
        for one in study.comparisons()
    ]
    assert pairs == [
        ("yarn", False, other, True, length) for other in ("pi", "none") for length in (128, 256)
    ]
    found = compile_study(study, {}).to_json()["expects"]
    assert [one for one in found if one["entry"] is not None] == list(study.comparisons())


def test_every_study_compares_its_methods_with_the_base_model_within_its_context():
    benchmarks = [
        {"name": "perplexity", "lengths": [128, 256, 512]},
        {"name": "passkey", "lengths": [512]},
        {**PASSKEY, "methods": ["none", "pi"]},
    ]

    def defaults(**changes: Any) -> set[tuple[Any, ...]]:
        text = edited(benchmarks=benchmarks, methods=FEW, **changes)
        study = parse_study(text, "my.yaml")
        return {
            (one["method"], one["frozen"], one["other_method"], one["other_frozen"],
             one["expected"], one["benchmark"], one["eval_length"], one["margin"])
            for one in study.comparisons({"toy_llama": 300})
            if one["entry"] is None
        }  # fmt: skip

    both = ("none", True, "not worse")
    losses = {
        (*method, *both, "perplexity", 256, 0.02) for method in (("pi", True), ("yarn", False))
    }
    assert defaults() == losses | {("pi", True, *both, "passkey", 256, 0.02)}
    assert defaults(short_context_margins=["0.1 accuracy"]) == {
        ("pi", True, *both, "passkey", 256, 0.1)
    }
    assert defaults(short_context_margins=[]) == set()
    own = {"equal": "none", "to": ["pi"], "benchmark": "passkey", "within": "0.3 accuracy"}
    assert defaults(expects=[own]) == losses
    unknown = parse_study(edited(), "my.yaml").comparisons({"toy_llama": None})
    assert all(one["entry"] is not None for one in unknown)


def test_an_order_is_expected_where_the_study_has_perplexity_and_the_benchmark():
    entry = {"predicts": "perplexity", "benchmark": "passkey", "claim": "LCEG: it predicts"}
    found = list(parse_study(edited(expects=[entry]), "my.yaml").comparisons())
    assert [one["eval_length"] for one in found] == [128, 256, 512, 1024]
    keys = ("expected", "method", "other_method", "claim")
    assert [found[0][key] for key in keys] == ["predicts", None, None, "LCEG: it predicts"]
    for changes, key, part in (
        ({"benchmark": "perplexity"}, "benchmark", "both perplexity and an accuracy"),
        ({"lengths": [500]}, "lengths", "passkey at 500 tokens"),
        ({"than": ["pi"]}, "than", "got `than`; expected no methods"),
        ({"predicts": "ruler"}, "predicts", "perplexity"),
    ):
        message = refusal(edited(expects=[entry | changes]))
        assert f"expects[0].{key}: got" in message
        assert part in message


def test_expectations_and_looks_change_no_id():
    without, looking = (
        compile_study(parse_study(edited(methods=FEW, benchmarks=[PASSKEY], **own), "my.yaml"), {})
        for own in ({}, {"expects": [EXPECTED], "short_context_margins": ["1 %"], "looks": [2, 3]})
    )
    assert list(without.steps) == list(looking.steps)
    assert "looks" not in without.to_json()
    assert looking.to_json()["looks"] == [2, 3]


def test_parameters_of_methods_and_training_that_change_after_a_result_are_named():
    common = {"methods": FEW, "benchmarks": [PASSKEY], "expects": None, "train_tokens": 65536}
    scaled = [*FEW[:2], {"name": "yarn", "tuned": True, "scale": 8.0}]
    other = [FEW[0], {"name": "ntk_frozen", "label": "pi"}, FEW[2]]
    for changes, expected in (
        ({"hypothesis": "Another.", "expects": [EXPECTED]}, []),
        ({"methods": scaled}, ["parameter yarn-tuned scale 8.0 added"]),
        (
            {"methods": other},
            ["parameter pi name pi dropped", "parameter pi name ntk_frozen added"],
        ),
        (
            {"train_tokens": 131072},
            ["parameter study train_tokens 65536 dropped",
             "parameter study train_tokens 131072 added"],
        ),
    ):  # fmt: skip
        versions = [
            {"results_before": 3, "expects": [],
             "design": parse_study(edited(**common | more), "my.yaml").design}
            for more in ({}, changes)
        ]  # fmt: skip
        assert [change for _, change in amendments(versions)] == expected


def expecting(**changes: object) -> dict[str, object]:
    entry = {key: value for key, value in {**EXPECTED, **changes}.items() if value is not None}
    return {"expects": [entry]}


def tuned(**changes: object) -> dict[str, object]:
    entry = {"name": "yarn", "tuned": True, **changes}
    return {"methods": [entry, {"name": "pi", "tuned": True}, "none"]}


def borrowing(**changes: object) -> dict[str, object]:
    more = {"name": "pi", "label": "more", "weights_of": "other-tuned"}
    return {"methods": [*FEW[::2], {"name": "pi", "label": "other", **changes}, more]}


def training(**changes: object) -> dict[str, object]:
    return {"training": {"tokens_per_step": 4096, "learning_rate": 0.1, **changes}}


def asking(**changes: object) -> dict[str, object]:
    return {"methods": FEW, "benchmarks": [PASSKEY, {**PASSKEY, **changes}]}


APART = [
    {"name": "passkey", "lengths": [128], "methods": ["yarn-tuned"]},
    {"name": "passkey", "lengths": [256], "methods": ["none", "pi"]},
]


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"target_context": "long"}, ["target_context", "'long'"]),
        ({"seeds": [1 << 63]}, ["seeds", "2^63"]),
        ({"hypothesis": None}, ["hypothesis", "nothing"]),
        ({"methods": [{"name": "yarn", "beta_fst": 32.0}]}, ["beta_fst", "write 'beta_fast'"]),
        ({"methods": [{"name": "self_extend", "tuned": True}]}, ["methods[0]", "inference only"]),
        ({"methods": ["yarn", {"name": "yarn", "scale": 2.0}]}, ["label"]),
        ({"benchmarks": [{"name": "passkey", "lengths": [128, 128]}]}, ["benchmarks[0]", "128"]),
        ({"metods": [{"name": "none"}]}, ["metods", "write 'methods'"]),
        (training(tokens_per_step=500), ["tokens_per_step", "512"]),
        (tuned(train_length=500), ["a multiple of train_length, 500, the row length of yarn"]),
        (tuned(tuned=False, train_tokens=4096), ["methods[0].train_tokens: got a value for yarn"]),
        (tuned(start_from="yarn"), ["got 'yarn', which is not in the study"]),
        (tuned(start_from="yarn-tuned"), ["a cycle: yarn-tuned, which starts from yarn-tuned"]),
        (tuned(start_from="none"), ["got 'none', which is not trained"]),
        (borrowing(weights_of="yarn-tuned", tuned=True), ["yarn-tuned with tuned: true"]),
        (borrowing(weights_of="yarn-tuned", checkpoint="a"), ["`weights_of` or `checkpoint`"]),
        (borrowing(weights_of="yarn-tuned", train_tokens=4096), ["which is not trained"]),
        (borrowing(weights_of="other-tuned"), ["got 'other-tuned', which is not trained"]),
        (borrowing(weights_of="more-tuned"), ["got 'more-tuned', which is not trained"]),  # cycle
        (asking(), ["got none passkey single 128, which is also in benchmarks[0]"]),
        (asking(lengths=[512], methods=["none", "none"]), ["none more than once"]),
        (expecting(better="yarm-tuned"), ["expects[0].better: got", "write 'yarn-tuned'"]),
        (expecting(than=["yarn-tuned"]), ["expects[0].than: got", "compared with itself"]),
        (expecting(than=[]), ["expects[0].than: got no methods"]),
        (expecting(better=None, equal="yarn-tuned"), ["expects[0].to: got `than`"]),
        (expecting(within="0.1 accuracy"), ["expects[0].within: got", "none for other entries"]),
        (expecting(**NOT_WORSE), ["expects[0].within: got no margin"]),
        (expecting(**NOT_WORSE, within=0.1), ["got 0.1; expected a positive number and the unit"]),
        (expecting(**NOT_WORSE, within="2 %"), ["expects[0].within: got", "the unit accuracy"]),
        (expecting(**NOT_WORSE, within="0 accuracy"), ["expects[0].within: got", "positive"]),
        (expecting(lengths=[512, 500]), ["expects[0].lengths: got", "passkey at 500 tokens"]),
        (expecting(metric="margin"), ["expects[0].metric: got margin", "none but the default"]),
        (expecting(among=["pi-tuned"]), ["expects[0].among: got pi-tuned"]),
        (expecting(weight=0.5), ["expects: got 1 weights", "the sum 0.5"]),
        ({"expects": SHARED_BY_NONE}, ["expects: got the weight 0 for the first tested entry"]),
        (
            {
                "expects": [
                    {**one, "base_model": base}
                    for base, one in zip(TWO, SHARED_BY_NONE[::-1], strict=True)
                ],
                "base_models": TWO,
            },
            ["got the weight 0 for the first tested entry of smollm2_135m"],
        ),
        (expecting(than=["pi", "pi"]), ["expects[0].than: got pi, pi; expected each once"]),
        (expecting(lengths=[128, 128]), ["expects[0].lengths: got 128, 128"]),
        ({"expects": [EXPECTED, EXPECTED]}, ["expects[1]: got the comparison", "expects[0] names"]),
        (expecting(base_model="llama"), ["expects[0].base_model: got", "write 'toy_llama'"]),
        (expecting(worse="pi"), ["expects[0].better: got `better` and `worse`"]),
        (expecting(better=None), ["expects[0].better: got none of the keys"]),
        ({**expecting(), "benchmarks": APART}, ["got passkey, where the study does not evaluate"]),
        *(
            ({"short_context_margins": margins}, ["short_context_margins: got"])
            for margins in (["2"], ["2 %", "3 %"])
        ),
        ({"looks": [2, 3]}, ["looks in a study whose `expects` compares no methods"]),
        ({**expecting(), "looks": [1, 3]}, ["1, too few seeds for a test"]),
        (
            {**expecting(), "seeds": [*range(201)], "looks": [2, 201]},
            ["2 of 201 seeds as the first look", "at least 2 and 1 % of the seeds"],
        ),
        ({**expecting(), "looks": [3, 3]}, ["numbers that do not increase"]),
        ({**expecting(), "looks": [2, 4]}, ["a look after the end: 4 of 3 seeds"]),
        ({**expecting(), "looks": [2]}, ["2 as the last look at 3 seeds"]),
    ],
)
def test_what_a_study_cannot_say_is_refused_with_its_place(changes, parts):
    message = refusal(edited(**changes))
    assert [part for part in parts if part not in message] == []


def test_more_comparisons_than_a_plan_should_hold_are_refused():
    names = [f"pi_{number}" for number in range(100)]
    text = edited(
        methods=["yarn", *({"name": "pi", "label": name} for name in names)],
        benchmarks=[{"name": "passkey", "lengths": [*range(128, 229)]}],
        expects=[{"better": "yarn", "than": names, "benchmark": "passkey"}],
    )
    assert "expects: got more than 10,000 comparisons" in refusal(text)


def test_a_study_that_trains_nothing_says_nothing_about_training():
    untrained = {key: value for key, value in TOY.items() if "train" not in key}
    frozen = {**untrained, "methods": ["none", "yarn"]}
    assert parse_study(yaml.safe_dump(frozen), "my.yaml").training is None
    entry = {"name": "yarn", "tuned": True}
    message = refusal(yaml.safe_dump({**frozen, "methods": [entry]}))
    assert "train_tokens: got nothing; expected a value for yarn-tuned" in message
    own = {"learning_rate": 1.0e-4, "tokens_per_step": 512}
    entry |= {"train_tokens": 4096, "training": own}
    assert parse_study(yaml.safe_dump({**frozen, "methods": [entry]}), "my.yaml")


def test_a_key_that_is_the_methods_own_parameter_is_the_methods():
    entry = {"name": "landmark", "block": 16, "train_length": 128, "top_k": 4, "tuned": True}
    (variant,) = parse_study(edited(methods=[entry]), "my.yaml").methods
    assert variant.train_length is None
    assert variant.method.identity()["train_length"] == 128


def test_files_that_cannot_be_read_are_named(tmp_path):
    with pytest.raises(SpecError, match=r"absent\.yaml"):
        load_study(tmp_path / "absent.yaml")
    latin = tmp_path / "latin.yaml"
    latin.write_bytes(b"study: caf\xe9\n")
    with pytest.raises(SpecError, match="got byte 10, which is not UTF-8"):
        load_study(latin)
    assert "got a value of type list; expected a mapping" in refusal("- a\n- b\n")
    with pytest.raises(SpecError, match=r"name of a shipped study.*write 'toy'"):
        study_path("toyy")


def test_pose_trains_short_rows_of_methods_that_only_change_frequencies():
    pose = {"name": "yarn", "label": "y", "tuned": True, "train_positions": "pose"}
    short = {**pose, "train_length": 128}
    study = parse_study(edited(methods=[short]), "my.yaml")
    assert study.methods[0].train_positions == "pose"
    for entry, key, part in (
        ({**pose, "train_length": 512}, "train_length", "shorter than the target context, 512"),
        (pose, "train_length", "512 with train_positions: pose"),
        ({**pose, "tuned": False}, "train_positions", "which is not trained"),
    ):
        message = refusal(edited(methods=[entry]))
        assert f"methods[0].{key}" in message
        assert part in message
    layers = {"layers": [0], "target_context": 128, "train_length": 64}
    for changes, part in (
        ({"name": "longlora"}, "changes attention"),
        ({"logit_scale": "log_length"}, "changes attention"),
        ({"name": "clex"}, "trains its frequencies"),
        ({"name": "harpe"}, "frequencies per layer or head"),
        ({"name": "dynamic_pi", **layers}, "frequencies per layer or head"),
        ({"name": "abf_multi_stage"}, "trains in several runs"),
    ):
        wrong = parse_study(edited(methods=[{**short, **changes}]), "my.yaml")
        with pytest.raises(SpecError, match=rf"methods\[0\].train_positions: got pose .*{part}"):
            compile_study(wrong, {})


def test_document_masks_are_refused_where_rows_or_attention_cannot_have_them():
    whole = {"packing": "best_fit", "document_masks": "restart"}
    run_on = {**whole, "document_masks": "run_on"}
    yarn = {"name": "yarn", "tuned": True, "training": whole}
    landmark = {"name": "landmark", "block": 16, "train_length": 128}
    for changes, part in (
        ({"training": {"document_masks": "run_on"}}, "rows in which toy_llama moves tokens"),
        ({"name": "longlora"}, "longlora, whose attention depends on the length of a row"),
        (landmark, "landmark, which cuts rows to insert tokens"),
        ({"name": "clex"}, "clex, whose training gives positions to whole rows"),
        ({"train_positions": "pose", "train_length": 128}, "gives positions to whole rows"),
        ({"name": "harpe", "training": run_on}, "harpe, whose attention counts positions itself"),
    ):
        wrong = parse_study(edited(methods=[{**yarn, **changes}]), "my.yaml")
        place = r"methods\[0\]: training.document_masks \(toy_llama\): got"
        with pytest.raises(SpecError, match=f"{place} .*{part}"):
            compile_study(wrong, {})
    masked = refusal(edited(methods=[{**yarn, "training": {"packing": "masked"}}]))
    assert "training.packing: got 'masked'; expected 'concatenated' or 'best_fit'; " in masked
    assert "`document_masks`" in masked
    good = [{**yarn, "name": name} for name in ("yarn", "harpe")]
    joined = {**yarn, "label": "joined", "training": {"packing": "best_fit"}}
    clex = {**yarn, "name": "clex", "training": run_on}
    plan = compile_study(parse_study(edited(methods=[*good, joined, clex]), "my.yaml"), {})
    rows = [step for step in plan.steps.values() if step.kind == "rows"]
    packings = [step.spec.get("packing") for step in rows if step.spec["row_length"] == 512]
    assert packings == ["best_fit"] * len(TOY["seeds"])  # masks need no rows of their own


def test_a_variant_may_have_its_own_mixture_of_text():
    yarn = {"name": "yarn", "tuned": True}
    third = {"long_document_tokens": 512, "long_share": 0.34, "domain_shares": {"code": 1.0}}
    study = parse_study(edited(methods=[yarn | {"label": "y"}, yarn | {"upsampling": third}]), "m")
    assert study.upsampling_of(study.methods[0]) == study.upsampling
    rows = [s for s in compile_study(study, {}).steps.values() if s.kind == "rows"]
    found = [step.spec["upsampling"] for step in rows if step.spec["row_length"] == 512]
    assert found.count(third) == len(found) // 2 == len(TOY["seeds"])
    for upsampling, part in (
        ({"long_share": 0.3, "short_keep_rate": 0.1}, "upsampling.short_keep_rate: got a value"),
        ({"domain_shares": {"cod": 1.0}}, "upsampling.domain_shares: got 'cod'"),
        ({"domain_shares": {"code": 0.4, "prose": 0.5}}, "upsampling.domain_shares: got shares"),
        ({"domain_shares": {"code": 1.5, "prose": -0.5}}, "upsampling.domain_shares.code: got 1.5"),
        ({"domain_shares": {}}, "upsampling.domain_shares: got shares that sum to 0"),
    ):
        assert f"my.yaml: {part}" in refusal(edited(upsampling=upsampling))
        of_entry = refusal(edited(methods=[yarn | {"upsampling": upsampling}]))
        assert f"my.yaml: methods[0].{part}" in of_entry
    assert "methods[0].upsampling" in refusal(
        edited(methods=[{"name": "yarn", "upsampling": third}])
    )


def study_with(**changes: Any) -> StudySpec:
    data = {**TOY, "methods": ["none", {"name": "yarn", "tuned": True}], **changes}
    return parse_study(yaml.safe_dump({k: v for k, v in data.items() if v is not None}), "my.yaml")


@pytest.mark.parametrize("name", recipe_names())
def test_every_value_is_one_that_a_study_takes_and_has_a_source(name):
    recipe = load_recipe(name)
    assert set(recipe.training) <= set(Training.model_fields)
    assert set(recipe.upsampling) <= set(Upsampling.model_fields)
    assert not set(recipe.training) & set(recipe.not_given)
    given = {"learning_rate": 1.0, "tokens_per_step": 1}
    Training.model_validate({**given, **{k: fact.value for k, fact in recipe.training.items()}})
    Upsampling.model_validate({k: fact.value for k, fact in recipe.upsampling.items()})
    assert all(fact.source for _, fact in recipe.facts())


@pytest.mark.parametrize(
    ("name", "batch", "rows", "steps"),
    [
        # Sequences of a batch, tokens of a row, optimizer steps.
        ("lceg_code", 256, 32768, 120),  # its scripts
        ("lceg_paper", 32, 32768, 953),  # table 7: 1B tokens in whole steps
        ("yarn", 64, 65536, 400),  # section 4.1
        ("rope_base", 128, 32768, 1000),  # section 5.1
        ("longlora", 64, 32768, 1000),  # section 4.1
        ("landmark", 128, 512, 15000),  # its README
    ],
)
def test_batches_and_tokens_are_the_printed_ones(name, batch, rows, steps):
    found = study_with(training={"recipe": name}, train_tokens=None, target_context=rows)
    assert found.training.tokens_per_step == batch * rows
    assert found.train_tokens // found.training.tokens_per_step == steps
    assert found.training.learning_rate == 2e-5


def test_a_recipe_is_the_same_study_as_its_values_written_out():
    named = study_with(training={"recipe": "lceg_code"}, train_tokens=None, upsampling=None)
    written = study_with(
        training={
            "learning_rate": 2e-5,
            "tokens_per_step": 8388608,
            "warmup_steps": 20,
            "schedule": "linear",
            "adam_beta2": 0.999,
            "precision": "bf16",
        },
        train_tokens=1006632960,
        upsampling={"long_document_tokens": 4096, "short_keep_rate": 0.1},
    )
    assert named == written


def test_what_a_study_writes_comes_before_its_recipe():
    own = {"recipe": "yarn", "learning_rate": 0.1, "tokens_per_step": 4096}
    found = study_with(training=own, train_tokens=8192, upsampling={"short_keep_rate": 0.5})
    assert (found.training.learning_rate, found.training.tokens_per_step) == (0.1, 4096)
    assert (found.training.schedule, found.training.adam_beta2) == ("linear", 0.95)
    assert (found.train_tokens, found.upsampling.short_keep_rate) == (8192, 0.5)


def test_an_entry_with_a_recipe_takes_nothing_of_the_studys_training():
    entry = {"name": "pi", "tuned": True, "training": {"recipe": "rope_base", "warmup_steps": 3}}
    found = study_with(methods=["none", entry])
    pi = found.methods[1]
    assert found.training_of(pi).weight_decay == 0.0 != found.training.weight_decay
    assert found.training_of(pi).warmup_steps == 3
    assert found.train_tokens_of(pi) == 4194304000
    again = study_with(methods=["none", {**entry, "train_tokens": 8388608}])
    assert again.train_tokens_of(again.methods[1]) == 8388608
