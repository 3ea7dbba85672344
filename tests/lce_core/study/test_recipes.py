"""Recipes give a study the values that their files cite, and leave no trace of themselves."""

from typing import Any

import pytest
import yaml

from lce_core.recipe import Training, Upsampling
from lce_core.study.recipes import load_recipe, recipe_names
from lce_core.study.spec import StudySpec
from lce_core.study.study_file import parse_study
from tests.support.toy_study import TOY


def study(**changes: Any) -> StudySpec:
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
    found = study(training={"recipe": name}, train_tokens=None, target_context=rows)
    assert found.training.tokens_per_step == batch * rows
    assert found.train_tokens // found.training.tokens_per_step == steps
    assert found.training.learning_rate == 2e-5


def test_a_recipe_is_the_same_study_as_its_values_written_out():
    named = study(training={"recipe": "lceg_code"}, train_tokens=None, upsampling=None)
    written = study(
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
    found = study(training=own, train_tokens=8192, upsampling={"short_keep_rate": 0.5})
    assert (found.training.learning_rate, found.training.tokens_per_step) == (0.1, 4096)
    assert (found.training.schedule, found.training.adam_beta2) == ("linear", 0.95)
    assert (found.train_tokens, found.upsampling.short_keep_rate) == (8192, 0.5)


def test_an_entry_with_a_recipe_takes_nothing_of_the_studys_training():
    entry = {"name": "pi", "tuned": True, "training": {"recipe": "rope_base", "warmup_steps": 3}}
    found = study(methods=["none", entry])
    pi = found.methods[1]
    assert found.training_of(pi).weight_decay == 0.0 != found.training.weight_decay
    assert found.training_of(pi).warmup_steps == 3
    assert found.train_tokens_of(pi) == 4194304000
    again = study(methods=["none", {**entry, "train_tokens": 8388608}])
    assert again.train_tokens_of(again.methods[1]) == 8388608
