"""Plans of the smoke study over a folder of text, and of edits of it."""

from pathlib import Path
from typing import Any

import yaml

from flows.settings import make_execution
from lce_core.runners import Runner
from lce_core.store.artifacts import Store
from lce_core.study.plan import StudyPlan, compile_study
from lce_core.study.study_file import parse_study
from tests.support.free_steps import write_file
from tests.support.studies import SMOKE


def written(folder: Path, text: str = "one two") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "a.jsonl").write_text(f'{{"text": "{text}"}}\n', encoding="utf-8")
    return folder


def planned(text: Path | None, **edits: Any) -> StudyPlan:
    """Compile the study; with None the folder of its text is not given."""
    corpus = {"name": "jsonl_folder", "folder": "text", "domain_names": ["code"]}
    study = parse_study(yaml.safe_dump({**SMOKE, "corpus": corpus, **edits}), "smoke.yaml")
    return compile_study(study, {"text": text} if text else {})


def fill(store: Store, plan: StudyPlan) -> None:
    """Commit the plan and a file in place of each step's result, as a run of the study would."""
    store.studies.save_plan(plan.study.study, plan.to_json(), "smoke.yaml")
    for step in plan.steps.values():
        store.ensure(step, write_file, {})


def new_runner(home: Path, text: Path, **models: Path) -> tuple[Runner, Store]:
    """A runner of steps over a store, whose studies read the folder `text` and these models."""
    store = Store(home)
    store.prepare()
    options = {"home": home, "device": "cpu", "data_folders": {"text": text}}
    options["model_folders"] = models
    return Runner(store, make_execution(options), lambda event: None), store
