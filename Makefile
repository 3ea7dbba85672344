# make study      sets up .venv, runs the toy study, prints its table and where to look next
# make test       the same set-up plus the tools, then lint, types and all but the long tests
# make test-long  runs the long tests: whole studies: shipped, killed or doubled
# make format     rewrites the files as `make test` wants them
# make perf       prints the speed measurements of docs/performance.md
# make clean      removes .venv and tool caches; results in lce-home stay
#
# PYTHON chooses the interpreter of a new .venv (make PYTHON=python3.12 study).
# PYTEST_ARGS is added to pytest (make test PYTEST_ARGS="-k plan").
# JOBS processes share the tests of either, a file at a time.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
LOCK := pyproject.toml constraints.txt
PYTEST_ARGS ?=
JOBS ?= 2
INSTALL := $(BIN)/python -m pip install -qq --disable-pip-version-check --no-input \
	--constraint constraints.txt

.DEFAULT_GOAL := help
.PHONY: help study test test-long format perf clean
.NOTPARALLEL:

help:
	@sed -n 's/^# \(make .*\)/\1/p' Makefile

study: $(VENV)/installed
	@$(BIN)/lce run toy

test: $(VENV)/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy & types=$$!; \
	$(BIN)/python -m pytest -n $(JOBS) --durations=10 \
	  -m "not long and not gpu and not network" $(PYTEST_ARGS); tests=$$?; \
	wait $$types || { echo 'mypy found errors: see above' >&2; exit 1; }; exit $$tests

test-long: $(VENV)/installed-dev
	$(BIN)/python -m pytest -n $(JOBS) -m "long and not gpu and not network" $(PYTEST_ARGS)

format: $(VENV)/installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

perf: $(VENV)/installed
	$(BIN)/python perf/study.py
	$(BIN)/python perf/attention.py
	$(BIN)/python perf/evaluation.py
	$(BIN)/python perf/decoding.py
	$(BIN)/python perf/prompts.py
	$(BIN)/python perf/planning.py
	$(BIN)/python perf/orchestration.py
	$(BIN)/python perf/scale.py
	$(BIN)/python perf/long_cell.py
	$(BIN)/python perf/data.py
	$(BIN)/python perf/training_step.py

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache

# A stamp is newer than the lock exactly while the installed set is the locked one.
$(VENV)/installed: $(LOCK) | $(BIN)/python
	@echo "Installing the locked dependencies into $(VENV); some minutes the first time"
	@$(INSTALL) --editable .
	@touch $@

$(VENV)/installed-dev: $(LOCK) | $(BIN)/python
	@echo "Installing the locked dependencies and tools into $(VENV); some minutes the first time"
	@$(INSTALL) --editable '.[dev]'
	@touch $(VENV)/installed $@

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' || { \
	  echo "$(PYTHON) is `$(PYTHON) --version 2>&1`; lce needs Python 3.11, 3.12 or 3.13." >&2; \
	  echo "Name one: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 2; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
	  echo "$(PYTHON) cannot make a virtual environment; on Debian: apt-get install python3-venv" >&2; \
	  exit 2; }
