"""A runner of steps over a new store, whose studies read the folder `text`."""

from pathlib import Path

from flows.settings import make_execution
from lce_core.runners import Runner
from lce_core.store.artifacts import Store


def new_runner(home: Path, text: Path) -> tuple[Runner, Store]:
    store = Store(home)
    store.prepare()
    options = {"home": home, "device": "cpu", "data_folders": {"text": text}}
    return Runner(store, make_execution(options), lambda event: None), store
