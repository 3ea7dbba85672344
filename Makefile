# make study      sets up .venv, runs the toy study, prints its table and where to look next
# make test       the same set-up plus the tools, then lint, types and all but the long tests
# make test-long  runs the long tests: whole studies: shipped, killed or doubled
# make format     rewrites the files as `make test` wants them
# make docs       builds the site of docs/ in build/site; every link is checked
# make perf       prints the speed measurements of docs/performance.md
# make install    sets up .venv from the lock and does nothing else
# make lock       adds to requirements.txt what pyproject.toml newly names (needs uv)
# make clean      removes .venv and tool caches; results in lce-home stay
#
# PYTHON chooses the interpreter of a new .venv (make PYTHON=python3.12 study), VENV its folder.
# UV_ARGS is added to uv (make lock UV_ARGS=--upgrade renews every version).
# PYTEST_ARGS is added to pytest (make test PYTEST_ARGS="-k plan").
# JOBS processes share the tests of either, a file at a time.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
LOCK := pyproject.toml requirements.txt
PYTEST_ARGS ?=
JOBS ?= 2
UV ?= uv
UV_ARGS ?=
INSTALL := $(BIN)/python -m pip install -qq --disable-pip-version-check --no-input --no-deps
# pip checks no hash of what it fetches to build a package in isolation: these have no wheel, and are
# built with the setuptools that the lock has.
SOURCES := rouge-score|sqlitedict|word2number
# Torch as PyPI has it for Linux, and the CUDA libraries that no other build of torch uses.
CUDA := torch|triton|cuda-[a-z]+|nvidia-[a-z0-9-]+
# $(call lines,==,PATTERN): the packages of the lock whose names match; with != all others.
lines = awk -v names="^($(2))==" '/^[a-z]/ {on = ($$0 ~ names) $(1) 1} on' requirements.txt

.DEFAULT_GOAL := help
.PHONY: help install study test test-long format docs perf lock clean
.NOTPARALLEL:

help:
	@sed -n 's/^# \(make .*\)/\1/p' Makefile

install: $(VENV)/installed

study: $(VENV)/installed
	@$(BIN)/lce run toy

test: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy & types=$$!; \
	$(BIN)/python -m pytest -n $(JOBS) --durations=10 \
	  -m "not long and not gpu and not network" $(PYTEST_ARGS); tests=$$?; \
	wait $$types || { echo 'mypy found errors: see above' >&2; exit 1; }; exit $$tests

test-long: $(VENV)/installed
	$(BIN)/python -m pytest -n $(JOBS) -m "long and not gpu and not network" $(PYTEST_ARGS)

format: $(VENV)/installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/installed
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	@echo 'To read it: $(BIN)/python -m http.server --bind 127.0.0.1 --directory build/site 8000'

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

# One lock for Python 3.11 to 3.13 on every system; versions it has stay unless UV_ARGS says otherwise.
lock:
	$(UV) pip compile pyproject.toml --extra dev --universal --python-version 3.11 \
	  --generate-hashes --custom-compile-command 'make lock' --output-file requirements.txt --quiet \
	  $(UV_ARGS)

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache

# A stamp is newer than the lock exactly while the installed set is the locked one.
# A build of torch that pip's find-links name (for CPUs, say) goes before PyPI's. It lies in no index,
# so the lock has no hash of it; pip would take the hashed one if both were asked for at once.
$(VENV)/installed: $(LOCK) | $(BIN)/python
	@echo "Installing the locked packages into $(VENV); some minutes the first time"
	@$(INSTALL) --no-index `sed -n 's/^\(torch==[^ ]*\).*/\1/p' requirements.txt` 2>$(VENV)/torch.log || true
	@others='$(SOURCES)'; \
	case `$(BIN)/python -m pip show torch 2>/dev/null | grep '^Version:'` in \
	  *+*) others="$$others|$(CUDA)";; \
	esac; $(call lines,!=,$$others) > $(VENV)/wheels.txt
	@$(call lines,==,$(SOURCES)) > $(VENV)/sources.txt
	@$(INSTALL) --require-hashes --only-binary :all: -r $(VENV)/wheels.txt
	@$(INSTALL) --require-hashes --no-build-isolation -r $(VENV)/sources.txt
	@$(INSTALL) --no-build-isolation --editable .
	@touch $@

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' || { \
	  echo "$(PYTHON) is `$(PYTHON) --version 2>&1`; lce needs Python 3.11, 3.12 or 3.13." >&2; \
	  echo "Name one: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 2; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
	  echo "$(PYTHON) cannot make a virtual environment; on Debian: apt-get install python3-venv" >&2; \
	  exit 2; }
