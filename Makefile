# make study      installs into .venv, runs the toy study, prints its table and what to do next
# make test       installs into .venv, then runs lint, type checks and the quick tests
# make check      runs what CI runs: all of this, then quick tests without Chromium, strace, git and others;
#                 make check PYTEST_ARGS=-x stops at the first failure
# make test-random  draws new examples, kills and damages; SEED=N repeats those of a printed seed
# make format     corrects lint errors and formats all files
# make docs       builds the site of docs/ in build/site and checks every link
# make perf       repeats the measurements of docs/performance.md
# make gpu-pack   packs smollm2-tuned for a GPU machine without network; make gpu-import takes its results
# make install    installs the locked packages into .venv
# make lock       adds new dependencies of pyproject.toml to requirements.txt (needs uv)
# make clean      removes .venv and caches of tools; results in lce-home stay
#
# PYTHON is the interpreter for a new .venv (make PYTHON=python3.12 study), VENV the folder of .venv.
# UV_ARGS are arguments for uv (make lock UV_ARGS=--upgrade upgrades every package).
# PYTEST_ARGS are arguments for pytest (make test PYTEST_ARGS="-k plan").
# JOBS is the number of parallel test processes.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
LOCK := pyproject.toml requirements.txt
PYTEST_ARGS ?=
JOBS ?= 2
# Programs that the second session of `make check` does without, as a newcomer's machine may.
ABSENT := chromium chromedriver strace ip git gcc g++ cc c++ clang clang++ x86_64-linux-gnu-gcc
MARKS := not slow and not gpu and not network
# A list of the test files that start a program or look for one on the PATH; `make check` writes it.
USERS := build/program-users
SEED := $(shell date +%s)
UV ?= uv
UV_ARGS ?=
INSTALL := $(BIN)/python -m pip install -qq --disable-pip-version-check --no-input --no-deps
# Packages without a wheel. They are built with the locked setuptools, without build isolation, because pip
# would download the tools of an isolated build without checking a hash.
SOURCES := rouge-score|sqlitedict|word2number
# PyPI's torch for Linux, and the CUDA libraries that only this build of torch uses.
CUDA := torch|triton|cuda-[a-z]+|nvidia-[a-z0-9-]+
# $(call lines,==,PATTERN): the locked packages whose names match PATTERN; with != all others.
lines = awk -v names="^($(2))==" '/^[a-z]/ {on = ($$0 ~ names) $(1) 1} on' requirements.txt

.DEFAULT_GOAL := help
.PHONY: help install study test test-random check format docs perf gpu-pack gpu-import lock clean
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
	$(BIN)/python -m pytest -n $(JOBS) --durations=10 -m "$(MARKS)" $(NOTE) $(PYTEST_ARGS); tests=$$?; \
	wait $$types || { echo 'mypy found errors: see above' >&2; exit 1; }; exit $$tests

# The quick tests and the slow ones in one session share what is made once. That session lists the test files
# that start a program or look for one. The second session, without some programs, collects every file, which
# imports it and evaluates its reasons to skip, and runs the quick tests of the listed files: a test in another
# file would not notice that a program is absent.
check: $(VENV)/installed
	@mkdir -p build && rm -rf build/bare && : > $(USERS)
	@$(MAKE) test JOBS=$$(($(JOBS) + 2)) MARKS="not gpu and not network" NOTE="--program-users=$(USERS)"
	@echo 'Again the quick tests that use programs, on a PATH without Chromium, strace, ip, git and a C compiler'
	@mkdir build/bare
	@IFS=:; for folder in $$PATH; do ln -s "$$folder"/* build/bare/ 2>/dev/null || true; done
	@cd build/bare && rm -f $(ABSENT)
	export PATH="$$PWD/build/bare" LCE_TEST_DATA=; \
	$(BIN)/python -m pytest --collect-only -qq -m "" > build/collected & collecting=$$!; \
	$(BIN)/python -m pytest -n $(JOBS) -m "$(MARKS)" $(PYTEST_ARGS) $$(sort -u $(USERS)); tests=$$?; \
	wait $$collecting || { cat build/collected; exit 1; }; exit $$tests

test-random: $(VENV)/installed
	@echo 'To repeat it: make test-random SEED=$(SEED)'
	LCE_DRAWS=$(SEED) $(BIN)/python -m pytest -n $(JOBS) --hypothesis-profile=random \
	  --hypothesis-seed=$(SEED) -m "(hypothesis or drawn) and not gpu and not network" $(PYTEST_ARGS)

format: $(VENV)/installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/installed
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	@echo 'To read it: $(BIN)/python -m http.server --bind 127.0.0.1 --directory build/site 8000'

# Without perf/gpu.py and its parts, which need a GPU, and modules of other scripts.
PERF := study attention evaluation decoding prompts planning hosts scale large_catalog first_view \
  data training_step launches updates predictions inference null_copies
perf: $(VENV)/installed
	@set -e; for name in $(PERF); do echo "perf/$$name.py"; $(BIN)/python perf/$$name.py; done

# The tuned study of a published model for a GPU machine without network (docs/gpus.md).
GPU_DATA ?= gpu-data
GPU_PARCELS ?= build/gpu-parcels
GPU_HAS ?= pyarrow scipy psutil threadpoolctl filelock packaging requests
gpu-pack: $(VENV)/installed
	$(BIN)/lce fetch smollm2_135m_q4
	rm -rf $(GPU_PARCELS)
	$(BIN)/lce pack smollm2-tuned --out $(GPU_PARCELS) $(addprefix --has ,$(GPU_HAS)) \
	  $(foreach name,pg19 proof_pile essays,--data-folder $(name)=$(GPU_DATA)/$(name))

gpu-import: $(VENV)/installed
	$(BIN)/lce import $(GPU_PARCELS)/results/*.tar.gz
	$(BIN)/lce report smollm2-tuned --format md

# One lock for Python 3.11 to 3.13 on every system. uv keeps the locked versions unless UV_ARGS changes that.
lock:
	$(UV) pip compile pyproject.toml --extra dev --universal --python-version 3.11 \
	  --generate-hashes --custom-compile-command 'make lock' --output-file requirements.txt --quiet \
	  $(UV_ARGS)

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache

# The file `installed` is newer than the lock if .venv has the locked packages.
# First install torch from pip's find-links (a CPU build, for example), if they have one. The lock has no hash
# of such a build, and with --require-hashes pip would choose PyPI's build.
$(VENV)/installed: $(LOCK) | $(BIN)/python
	@echo "Installing the locked packages into $(VENV); this takes some minutes the first time"
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
	  echo "Choose another one: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 2; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
	  echo "$(PYTHON) cannot create a virtual environment; on Debian: apt-get install python3-venv" >&2; \
	  exit 2; }
