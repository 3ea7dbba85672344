"""Every registered method is exported and then computed by stock transformers, or is refused.

Tiny random models are in float64, so that all that differs is how frequencies were computed. Stock
transformers answers in a process of its own, from the folder alone.
"""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast

from lce_core.contracts.tiny_models import (
    BASES,
    LENGTHS,
    TARGET,
    TRAINED,
    VOCABULARY,
    fits,
    logits,
    stock,
    tokens,
)
from lce_core.errors import SpecError
from lce_core.export.folder import _generation, export
from lce_core.export.stock_form import StockForm, Subject, stock_form
from lce_core.extension.extending import extend
from lce_core.extension.learned import LEARNED, make_rotary
from lce_core.methods import METHODS, Applied, Method
from lce_core.models import LanguageModel, ModelShape
from lce_core.rope import ContextLengths
from tests.support.oracles.stock_answers import answers

pytestmark = pytest.mark.slow
TOLERANCE = 1e-4
"""Stock transformers computes frequencies, angles and cosines in float32."""
ROUNDED_TOLERANCE = 3e-4
"""For methods that give the fastest pair a frequency that is no power of two, such as llama3 on
these tiny models. Its angles are then rounded in float32; those of other methods are exact."""
FIXED = 40
"""Tokens of the requests whose table is exported, where it follows their length."""


def with_files(base: LanguageModel) -> LanguageModel:
    """The tiny model with the rest of what an exported one has."""

    class WithFiles(type(base)):
        plugin_name, plugin_version, licence = type(base).__name__, 1, "MIT"
        shape: ClassVar[ModelShape] = ModelShape(
            num_layers=2,
            hidden_size=base.geometry.num_heads * base.geometry.head_dim,
            intermediate_size=48,
            vocab_size=VOCABULARY,
        )

        def tokenizer(self, folder: Path | None) -> Any:
            words = WordLevel({str(i): i for i in range(VOCABULARY)}, unk_token="0")
            return PreTrainedTokenizerFast(tokenizer_object=Tokenizer(words))

    return WithFiles()


def examples(name: str) -> list[Method]:
    return [METHODS.parse({"name": name, **one}, "test") for one in METHODS.load(name).examples]


@dataclass
class Case:
    base: LanguageModel
    method: Method
    source: Path
    out: Path
    form: StockForm

    @property
    def lengths(self) -> list[int]:
        if self.form.only_at is not None:
            return [self.form.only_at]
        far = [] if self.form.follows_up_to else [3 * TARGET]
        return [TRAINED - 4, TRAINED + 1, TARGET, *far]

    @property
    def job(self) -> dict[str, Any]:
        texts = [tokens(length, 1)[0].tolist() for length in self.lengths]
        # A cell's request is prompt and answer: what is decoded crosses the trained context.
        return {
            "folder": str(self.out),
            "texts": texts,
            "prompt": tokens(TRAINED - 4, 1, seed=1)[0].tolist(),
            "new_tokens": FIXED - (TRAINED - 4),
        }

    def extended(self) -> Any:
        learned = self.source / LEARNED if self.method.rotary is not None else None
        return extend(stock(self.base), self.base, self.method, target=TARGET, learned=learned)


def source_of(base: LanguageModel, method: Method, folder: Path) -> Path:
    """The checkpoint of a trained model, with what a method learns away from its start."""
    stock(base).save_pretrained(folder)
    if method.rotary is not None:
        rotary = make_rotary(Applied(method, base.geometry, LENGTHS, 2), identity=False, seed=0)
        generator = torch.Generator().manual_seed(3)
        drawn = {
            name: 0.1 * torch.randn(tensor.shape, generator=generator)
            for name, tensor in rotary.state_dict().items()
        }
        save_file(drawn, folder / LEARNED)
    return folder


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory) -> dict[str, list[Any]]:
    """By method: exported cases, and refusals as errors.

    The first example is put on every base model, each other one on one of them.
    """
    root = tmp_path_factory.mktemp("exported")
    found: dict[str, list[Any]] = {}
    bases = [with_files(base) for base in BASES]
    for name in METHODS.names():
        for number, method in enumerate(examples(name)):
            for base in bases if number == 0 else [bases[number % 2]]:
                if fits(method, base):
                    place = root / f"{name}-{number}-{base.plugin_name}"
                    found.setdefault(name, []).extend(_outcomes(base, method, place))
    return found


def _outcomes(base: LanguageModel, method: Method, place: Path) -> Iterator[Any]:
    source = source_of(base, method, place / "source")
    for length in (None, FIXED):
        subject = Subject("tiny", method.plugin_name, base, method, TARGET, source)
        out = place / f"out-{length}"
        try:
            form = export(subject, out, length=length)
        except SpecError as error:
            assert not out.exists()
            assert not [left for left in place.iterdir() if left.name.startswith(".")]
            yield error
            if "--length" not in error.remedy:
                return
        else:
            yield Case(base, method, source, out, form)
            return


@pytest.fixture(scope="module")
def compared(outcomes, tmp_path_factory) -> list[tuple[Case, dict[str, torch.Tensor]]]:
    cases = [one for some in outcomes.values() for one in some if isinstance(one, Case)]
    found = answers([case.job for case in cases], tmp_path_factory.mktemp("answers"))
    return list(zip(cases, found, strict=True))


def tolerance(case: Case) -> float:
    fastest = case.form.table.inv_freq.max()
    return TOLERANCE if math.frexp(fastest)[0] == 0.5 else ROUNDED_TOLERANCE


def test_every_method_that_only_changes_frequencies_of_all_heads_is_exported_and_others_refused(
    outcomes,
):
    assert sorted(outcomes) == METHODS.names()
    geometry = BASES[0].geometry
    for name, some in outcomes.items():
        method = examples(name)[-1]
        plain = method.attention(geometry, LENGTHS) is None
        shared = method.rope_table(geometry, LENGTHS).inv_freq.ndim == 1
        alike = not any(method.layer(index, geometry, LENGTHS) for index in range(4))
        expected = plain and shared and alike and method.insertion(geometry) is None
        assert any(isinstance(one, Case) for one in some) == expected, name
        for refusal in (one for one in some if isinstance(one, SpecError)):
            assert refusal.where.startswith(f"{name}."), refusal


def test_stock_transformers_computes_our_logits_in_one_pass(compared):
    for case, found in compared:
        extended = case.extended()
        for index, text in enumerate(case.job["texts"]):
            ours = logits(extended, torch.tensor([text]))[0]
            worst = (found[f"text-{index}"] - ours).abs().max().item()
            assert worst < tolerance(case), (case.method, case.base.plugin_name, len(text), worst)


def test_cached_decoding_of_stock_transformers_is_ours(compared):
    for case, found in compared:
        decoded, prompt = found["decoded"], len(case.job["prompt"])
        assert len(decoded) == FIXED
        ours = logits(case.extended(), decoded[None])[0, prompt - 1 : -1]
        worst = (found["scores"] - ours).abs().max().item()
        assert worst < tolerance(case), (case.method, case.base.plugin_name, worst)


def test_a_folder_has_the_same_weights_stock_files_and_older_keys_alone(compared):
    generated = ["README.md", "config.json", "generation_config.json", "model.safetensors"]
    for case, _ in compared:
        names = sorted(path.name for path in case.out.iterdir())
        assert names == [*generated, "tokenizer.json", "tokenizer_config.json"]
        written, kept = (load_file(p / "model.safetensors") for p in (case.out, case.source))
        assert written.keys() == kept.keys()
        assert all(torch.equal(written[name], kept[name]) for name in kept)
        config = json.loads((case.out / "config.json").read_text(encoding="utf-8"))
        stated = config["rope_parameters"]
        assert config["rope_theta"] == stated["rope_theta"]
        assert config.get("partial_rotary_factor") == stated.get("partial_rotary_factor")
        older = config["rope_scaling"] or {"rope_type": "default"}
        assert {**stated, **older} == stated
        assert config["max_position_embeddings"] == case.form.context


def test_several_ends_of_text_are_kept_and_the_first_pads(tmp_path):
    words = WordLevel({str(i): i for i in range(20)}, unk_token="0")
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(words))
    several = _generation({"eos_token_id": [10, 11]}, tmp_path, tokenizer)
    assert (several["eos_token_id"], several["pad_token_id"]) == ([10, 11], 10)
    # Chat models have one end in their configuration and more in that of their generation.
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [3, 4]}', encoding="utf-8")
    chat = _generation({"eos_token_id": 3}, tmp_path, tokenizer)
    assert (chat["eos_token_id"], chat["pad_token_id"]) == ([3, 4], 3)


@pytest.mark.parametrize(
    ("name", "parameters", "base", "match"),
    [
        # No rope_type has frequencies that fall faster than those of a base, and then 0.
        ("cope", {"num_clipped": 3}, 0, r"cope\.rope_table: got 1 of 4 pairs without rotation"),
        # Heads of Phi rotate in part, and transformers counts both kinds of parts by one key.
        ("hard_clip", {"num_clipped": 1}, 2, r"1 of \d pairs without rotation; .*as a whole"),
        ("yarn", {}, 2, "only the rotated elements"),
        ("pi", {"logit_scale": "log_length"}, 0, r"pi\.logit_scale: got 'log_length'"),
    ],
)
def test_what_no_rope_type_says_is_refused(name, parameters, base, match):
    method = METHODS.parse({"name": name, **parameters}, "test")
    with pytest.raises(SpecError, match=match):
        stock_form(method, with_files(BASES[base]), TARGET)


@pytest.mark.parametrize("name", ["ntk_32k", "ntk_64k", "dynamic_pi"])
def test_frequencies_for_requests_beyond_the_target_hold_for_these_alone(name):
    method, geometry = METHODS.parse({"name": name}, "test"), BASES[0].geometry
    form = stock_form(method, with_files(BASES[0]), TARGET, length=2 * TARGET)
    lengths = ContextLengths(TRAINED, TARGET, 2 * TARGET)
    assert form.table.agrees(method.rope_table(geometry, lengths), 0.0)
    assert form.only_at == 2 * TARGET
