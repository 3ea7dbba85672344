"""What is read and planned without computing loads none of the heavy libraries."""

import subprocess
import sys

HEAVY = {"datasets", "prefect", "torch", "transformers"}
CODE = """
import sys
from flows.settings import study_path
from lce_core.benchmarks import BENCHMARKS
from lce_core.corpora import CORPORA
from lce_core.evaluation import metrics
from lce_core.methods import METHODS
from lce_core.models import MODELS
from lce_core.statistics import estimates
from lce_core.study.plan import compile_study
from lce_core.study.study_file import load_study
names = METHODS.names()
assert "yarn" in names and not any(name.startswith("_") for name in names), names
assert not [m for m in sys.modules if m.startswith("lce_core.methods.") and "._" not in m]
for name in names:
    METHODS.load(name)
for name in BENCHMARKS.names():
    BENCHMARKS.parse({"name": name}, "x")
for name in MODELS.names():
    MODELS.parse({"name": name, **MODELS.load(name).examples[0]}, "x").pretraining()
for name in CORPORA.names():
    CORPORA.parse({"name": name}, "x")
compile_study(load_study(study_path("toy")), {})
print(*sys.modules)
"""


def test_plug_ins_are_loaded_and_a_study_is_planned_without_heavy_libraries():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert not HEAVY & set(done.stdout.split())
