import torch

from lce_core.errors import DataError, SpecError, UnavailableError
from lce_core.models import MODELS
from lce_core.models._weights import weights_digest
from lce_core.rope.bound import frequencies_of, smallest_base
from tests.support.architectures import save
from tests.support.data.packaged_models import TinyPackaged
from tests.support.errors.provocations import Place, provokes
from tests.support.training_jobs import BASE

LLAMA = MODELS.parse({"name": "llama2_7b"}, "base_models[0]")


provokes(UnavailableError, "llama2_7b")(lambda _: LLAMA.load(None, None))
provokes(UnavailableError)(lambda place: weights_digest(place.folder))
provokes(UnavailableError, "none")(lambda place: weights_digest(place.folder / "none"))
provokes(UnavailableError, "toy_llama")(lambda place: BASE.fetch(place.folder))
provokes(UnavailableError, "tiny_packaged")(lambda _: TinyPackaged().load(None, None))


@provokes(SpecError, "qwen3", slow=True)
def _(place: Place) -> None:
    from tests.support.architectures import hub_model, random_model

    for model_type in ("mistral", "qwen3"):
        random_model(model_type).save_pretrained(place.folder / model_type)
    hub_model(place.folder / "mistral").load_published(place.folder / "qwen3", torch.float32)


MINE = MODELS.parse({"name": "hub_model", "label": "mine"}, "base_models[0]")


@provokes(DataError, "base model mine: tokenizer: got '</s>")
def _(place: Place) -> None:
    beyond = BASE.tokenizer(None)
    beyond.add_special_tokens({"eos_token": "</s>"})
    folder = save("llama", place.folder, beyond)
    MINE.resolved(folder).tokenizer(folder)


provokes(SpecError, "RoPE base: got 1.0")(lambda _: frequencies_of(1.0, 128))
provokes(SpecError, "rotated elements: got 7")(lambda _: frequencies_of(1e4, 7))
provokes(SpecError, "length: got 0")(lambda _: smallest_base(0, 128))
provokes(SpecError, "length 2 with 2")(lambda _: smallest_base(2, 2))
