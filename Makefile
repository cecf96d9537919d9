# One command for each thing a person does here. The first one sets up .venv; later ones install
# nothing until requirements.txt or pyproject.toml changes. Without make: see README.md.

VENV   := .venv
PYTHON := $(VENV)/bin/python
READY  := $(VENV)/.ready
# Tests left out of `make test`: long ones, and those that need more than requirements.txt.
MARKS  ?= not slow and not browser

# Test files are shared out to so many processes; each file stays in one, with its fixtures.
WORKERS ?= 2
SHARED := -n $(WORKERS) --dist loadfile

# Older releases of transformers, each with the libraries of its time in a folder of its own, which
# stands first on the path; torch and all else come from .venv.
OLDER  := $(VENV)/transformers
4.57.6 := "transformers==4.57.6" "huggingface_hub<1" "tokenizers<0.23"
4.51.3 := "transformers==4.51.3" "huggingface_hub<1" "tokenizers<0.22"
RELEASES ?= 4.57.6 4.51.3

# The first of these that runs and is new enough; a name on the path may be an empty shim.
FIND_PYTHON = for name in python3.11 python3 python; do \
	"$$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& echo "$$name" && exit; done

# Packages that users have beside the lab and some tests need, in a folder that only these see.
BESIDE := $(VENV)/beside
PACKAGES_BESIDE := duckdb openpyxl et_xmlfile xlsxwriter wrapt peft modelscope modelscope_hub \
	addict cryptography cffi pycparser simplejson sortedcontainers
TESTS_BESIDE := tests/lessons/test_recipes.py tests/export/test_sql.py \
	$(addprefix tests/instrument/,test_adapters.py test_first_seed.py test_strangers.py)

.DEFAULT_GOAL := help
.PHONY: help setup demo models lab test test-all test-beside test-browser test-generations lint bench bench-peers doctor-score doctor-score-all demo-model demo-model-check clean

help: ## list these commands
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) \
		| awk -F'|' '{ printf "%-24s %s\n", $$1, $$2 }'

setup: $(READY) ## make .venv and install everything into it (the others do this first)

demo: $(READY) ## record the main job on the embedded model, print its story, write trace and CSV
	@$(PYTHON) -m tracer demo

models: $(READY) ## download SmolLM2, a small real language model (93 MB), into the user's cache
	@$(PYTHON) -m tracer models smollm2

lab: $(READY) ## open JupyterLab on the notebooks; OPTIONS="--no-browser" goes to JupyterLab
	@$(PYTHON) -m tracer lab $(if $(OPTIONS),-- $(OPTIONS))

test: $(READY) ## run the tests
	OMP_NUM_THREADS=1 $(PYTHON) -m pytest -q $(SHARED) -m "$(MARKS)"

test-all: $(READY) ## run all tests, the long ones and those with further needs too
	OMP_NUM_THREADS=1 $(PYTHON) -m pytest -q $(SHARED)

test-beside: $(BESIDE)/.ready ## run the tests that need DuckDB, PEFT, ModelScope and their like
	PYTHONPATH=$(BESIDE) OMP_NUM_THREADS=1 $(PYTHON) -m pytest -q $(SHARED) $(TESTS_BESIDE)

$(BESIDE)/.ready: | $(READY)
	@echo "Installing packages that some tests need into $(BESIDE)"
	@$(PYTHON) -m pip install -qq --disable-pip-version-check --no-deps --target $(BESIDE) \
		$(PACKAGES_BESIDE)
	@touch $@

test-browser: $(READY) ## walk through the notebooks in a real browser; needs Chromium
	@$(PYTHON) -m pip install -qq --disable-pip-version-check "playwright>=1.50"
	$(PYTHON) -m pytest -q -m browser

test-generations: $(RELEASES:%=test-generation-%) ## run tests on older releases of transformers
	@echo "Ran on: $(RELEASES)"

# The tests themselves say which release they ran on, and fail on another one. Old releases warn of
# what their own later ones mended, so warnings are no errors here.
test-generation-%: $(OLDER)/%/.ready
	PYTHONPATH=$(OLDER)/$* TRACER_TEST_RELEASE=$* OMP_NUM_THREADS=1 \
		$(PYTHON) -m pytest -q $(SHARED) -W default -m generations tests/instrument

.PRECIOUS: $(OLDER)/%/.ready
$(OLDER)/%/.ready: | $(READY)
	@echo "Installing transformers $* into $(OLDER)/$*"
	@$(PYTHON) -m pip install -qq --disable-pip-version-check --no-deps --target $(OLDER)/$* $($*)
	@touch $@

lint: $(READY) ## check format, style and types
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m mypy

bench: $(READY) ## measure what recording costs
	$(PYTHON) -m benchmarks

bench-peers: $(READY) ## measure what other tools cost on the same work
	$(PYTHON) -m benchmarks.peers --install

doctor-score: $(READY) ## what the doctor finds of seeded faults, and its false alarms
	@PYTHONPATH=. OMP_NUM_THREADS=1 $(PYTHON) tests/diagnosis/score.py

doctor-score-all: $(READY) $(RELEASES:%=$(OLDER)/%/.ready) ## the same on every release
	@PYTHONPATH=. OMP_NUM_THREADS=1 $(PYTHON) tests/diagnosis/score.py --all

demo-model: $(READY) ## train the embedded model anew, from random weights, into runs/demo-model
	$(PYTHON) -m tracer.demo.train --out runs/demo-model

demo-model-check: $(READY) ## examine the embedded model; FOLDER=runs/demo-model: that one
	@$(PYTHON) -m tracer.demo.check --threads 1 $(if $(FOLDER),--folder $(FOLDER))

clean: ## delete runs and caches; .venv stays
	rm -rf runs build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find tracer tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

$(READY): requirements.txt pyproject.toml
	@if ! $(PYTHON) -m pip --version >/dev/null 2>&1; then \
		python="$$($(FIND_PYTHON))"; \
		if [ -z "$$python" ]; then \
			echo "Tracer Lab needs Python 3.11 or newer, and found none on the PATH." >&2; \
			echo "Install one (https://www.python.org/downloads/), then run make again." >&2; \
			exit 1; \
		fi; \
		echo "Creating $(VENV) with $$("$$python" --version)"; \
		"$$python" -m venv $(VENV); \
	fi
	@echo "Installing requirements.txt into $(VENV): minutes the first time, torch is large"
	@$(PYTHON) -m pip install -qq --disable-pip-version-check -r requirements.txt
	@$(PYTHON) -m pip install -qq --disable-pip-version-check \
		--no-deps --no-build-isolation --editable .
	@touch $@
