# Every target makes the virtual environment it needs when it is missing.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUN_READY := $(VENV)/.run-ready
DEV_READY := $(VENV)/.dev-ready

.PHONY: run test lint bench clean help

help:  ## this list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/'

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(RUN_READY): pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[plot]'
	@touch $@

$(DEV_READY): pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@ $(RUN_READY)

run: $(RUN_READY)  ## compare methods on the embedded features: a table and a plot
	$(BIN)/manyway bench quickstart

test: $(DEV_READY)  ## the whole test suite
	$(BIN)/python -m pytest

lint: $(DEV_READY)  ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(DEV_READY)  ## speed against a dense reference, on this machine
	$(BIN)/python -m benchmarks.cpu

clean:  ## remove the virtual environment and caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
