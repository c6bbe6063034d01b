# Everything runs from a virtual environment in .venv, made on first use and
# brought up to date whenever pyproject.toml changes.
#
#   PYTHON=python3.12   the interpreter to make .venv with (3.10 to 3.13)
#   EXTRAS=test,torch   what to install besides the run-time dependencies
#   N=1000              cases for `make fuzz`
#   PYTEST_ARGS="-k x"  further arguments for pytest

EXTRAS ?= test
N ?= 200
PYTEST_ARGS ?=

VENV := .venv
PY := $(VENV)/bin/python
comma := ,
STAMP := $(VENV)/.installed-$(subst $(comma),-,$(EXTRAS))

# The first interpreter that starts and whose version is supported.
CANDIDATES := $(PYTHON) python3.11 python3 python3.13 python3.12 python3.10
SUPPORTED := import sys; sys.exit(not (3, 10) <= sys.version_info[:2] < (3, 14))

export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help venv demo test test-gpu lint format bench-quick fuzz clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' Makefile

venv: $(STAMP) ## make or update .venv

$(STAMP): pyproject.toml
	@set -e; found=; \
	for python in $(CANDIDATES); do \
	    if $$python -c '$(SUPPORTED)' 2>/dev/null; then found=$$python; break; fi; \
	done; \
	if [ -z "$$found" ]; then \
	    echo "make: no Python 3.10 to 3.13 found; name one with PYTHON=..." >&2; exit 1; \
	fi; \
	if [ ! -x $(PY) ]; then \
	    echo "making $(VENV) with $$found ($$($$found -V))"; \
	    $$found -m venv $(VENV) || { rm -rf $(VENV); exit 1; }; \
	fi; \
	echo "installing cora-ragged[$(EXTRAS)]"; \
	$(PY) -m pip install --quiet --quiet --editable '.[$(EXTRAS)]'; \
	touch $@

demo: $(STAMP) ## an encoder layer on a batch of real lengths: checked, timed against padded ones
	@$(PY) -m benchmarks demo

test: lint ## lint, then the tests on all cores
	@$(PY) -m pytest --numprocesses auto --quiet $(PYTEST_ARGS)

test-gpu: $(STAMP) ## on a machine with a GPU: the CUDA tests on it, all operators, and those that need it
	@$(PY) -c 'import sys; from cora.runtime.cuda.driver import open_device; print(open_device().name())' || \
	    { echo "make: no CUDA device; 'make test' runs the CUDA tests on the CPU" >&2; exit 2; }
	@CORA_CUDA_EMULATOR=0 $(PY) -m pytest --quiet tests/cuda $(PYTEST_ARGS)

lint: $(STAMP) ## ruff (rules and format) and mypy
	@$(PY) -m ruff check --quiet --output-format concise .
	@$(PY) -m ruff format --quiet --check --output-format concise . || \
	    { echo "make: run 'make format'" >&2; exit 1; }
	@$(PY) -m mypy

format: $(STAMP) ## rewrite the sources as ruff formats them
	@$(PY) -m ruff check --quiet --fix . || true
	@$(PY) -m ruff format .

bench-quick: $(STAMP) ## every experiment in its short form, into results/
	@$(PY) -m benchmarks all --quick --out results

fuzz: $(STAMP) ## random programs and schedules against the interpreter (N=...)
	@$(PY) -m tests.fuzz --cases $(N)

clean: ## remove what was generated, but for .venv and results/
	@rm -rf build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	@find . -name __pycache__ -type d -not -path './$(VENV)/*' -prune -exec rm -rf {} +
