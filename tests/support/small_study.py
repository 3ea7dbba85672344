"""A study of tiny frozen models over a short text, planned, and run in this process."""

from pathlib import Path
from typing import Any

import yaml

from lce_core.execution import Execution
from lce_core.runners import Runner
from lce_core.store.artifacts import Store
from lce_core.study.plan import StudyPlan, compile_study
from lce_core.study.progress import inspect
from lce_core.study.study_file import parse_study
from lce_core.study.units import units_to_do

STUDY: dict[str, Any] = {
    "study": "shared",
    "hypothesis": "None.",
    "target_context": 2048,
    "corpus": {"name": "jsonl_folder", "domain_names": ["code"]},
    "base_models": [{"name": "hub_model", "label": "tiny"}],
    "methods": ["none", "dynamic_pi", {"name": "self_extend", "window": 256, "group": 16}],
    "evaluation": {"held_out_tokens": 4096},
    "benchmarks": [
        {"name": "nll_by_position", "lengths": [1024], "domains": ["code"]},
        {"name": "perplexity", "profile": "fast", "stride": 1024, "lengths": [1024, 512, 300],
         "domains": ["code"]},
    ],
    "seeds": [0],
}  # fmt: skip


def written_text(folder: Path) -> Path:
    for name in range(150):  # documents, a few per cent of which are held out
        lines = (f"Of {i} and {name} the product is {i * name}.\n" for i in range(40))
        (folder / f"{name}.txt").write_text("".join(lines))
    return folder


class Small:
    def __init__(self, tiny: Path, data: dict[str, Path], home: Path, **changes: Any) -> None:
        study = parse_study(yaml.safe_dump({**STUDY, **changes}), "mine.yaml")
        models = {"tiny": tiny}
        self.plan: StudyPlan = compile_study(study, data, models)
        self.store, self.data = Store(home), data
        self.execution = Execution(home=home, model_folders=models, data_folders=data)

    def run(self, *kinds: str) -> None:
        """Compute the steps of these kinds, or all."""
        self.store.prepare()
        runner = Runner(self.store, self.execution, lambda event: None)
        states = inspect(self.plan, self.store, {**self.data})
        for unit in units_to_do(self.plan, states):
            for step in unit.steps:
                if not kinds or step.kind in kinds:
                    runner.ensure(step)
