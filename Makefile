# Everything happens in .venv, made on first use; needs Python 3.11 and make. `make demo` installs
# what it runs, the other targets the rest. Where pip would take torch with CUDA, this leaves it out:
#   PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu make demo
#
#   make demo    accounting, a release and its ledger, then every method compared: demo-output/report.html
#   make test    every test, slow ones too
#   make check   format, lint, types, import contracts, quick tests: under a minute
#   make bench   benchmarks beside the peers
#   make docs    the documentation, warnings are errors: docs/_build/html/index.html
#   make dist    a wheel and dist/simple, an index that pip installs privet by name from
#   make clean   remove what these made, and .venv

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV   := .venv
BIN    := $(VENV)/bin
RUNS   := $(VENV)/.privet-runs
READY  := $(VENV)/.privet-ready
PIP    := $(BIN)/python -m pip --disable-pip-version-check install --quiet -c constraints.txt
JOBS   ?= 2
TOGETHER := $(if $(filter output-sync,$(.FEATURES)),--output-sync=target)

# data that cannot be shipped, where it lies beside the project
ifneq ($(wildcard ../shared/data/.),)
export PRIVET_DATA ?= $(abspath ../shared/data)
endif

# tests are rewritten by pytest: kept as bytecode, that is done once and not by every worker
unexport PYTHONDONTWRITEBYTECODE

.PHONY: all demo test lint quick check bench docs dist format clean
all: check

$(RUNS): pyproject.toml papers/pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) -e '.[train,plot]' -e papers
	touch $@

$(READY): $(RUNS)
	$(PIP) -e '.[train,plot,segmentation,cluster,test,docs,peers]' -e papers
	touch $@

demo: $(RUNS)
	$(BIN)/privet demo --out demo-output
	$(BIN)/privet compare --data digits --epsilon 1 --delta 1e-5 --out demo-output

test: $(READY)
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile

quick: $(READY)
	$(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal -m "not slow"

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# linters beside the tests, since they keep one core busy; each says what it found when it is done
check: $(READY)
	@$(MAKE) --no-print-directory --keep-going -j 2 $(TOGETHER) lint quick

bench: $(READY)
	for b in benchmarks/[a-z]*.py; do \
	  name=$$(basename $$b .py); \
	  if grep -q '__main__' $$b; then echo "== $$name"; $(BIN)/python -m benchmarks.$$name || exit 1; fi; \
	done

docs: $(READY)
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html
	@echo docs/_build/html/index.html

dist: $(READY)
	$(BIN)/python -m hatchling build -d dist
	cd papers && ../$(BIN)/python -m hatchling build -d ../dist
	$(BIN)/python tools/index.py dist
	@echo "pip install --extra-index-url file://$(abspath dist)/simple 'privet[train,plot]'"

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) build dist demo-output docs/_build docs/_generated .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
