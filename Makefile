# Each target creates the virtual environment that it needs if it is missing.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUN_READY := $(VENV)/.run-ready
DEV_READY := $(VENV)/.dev-ready
DOCS_READY := $(VENV)/.docs-ready

.PHONY: run test lint docs package clip lock bench clean help

help:  ## list the targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/'

$(BIN)/python:
	@echo "Building an environment in $(VENV)/. It is done once and takes some minutes; nothing else is changed."
	$(PYTHON) -m venv $(VENV)

$(RUN_READY): pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing manyway and what it needs into $(VENV)/."
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[plot]'
	@touch $@

$(DEV_READY): pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing manyway and what its tests need into $(VENV)/."
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@ $(RUN_READY)

$(DOCS_READY): pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[docs]'
	@touch $@ $(RUN_READY)

run: $(RUN_READY)  ## build an environment in .venv if there is none, and compare methods on the embedded features
	$(BIN)/manyway bench quickstart

test: $(DEV_READY)  ## build an environment in .venv if there is none, and run all tests; options for pytest: make test PYTEST='-m "not slow"'
	PYTHONDONTWRITEBYTECODE= MIMALLOC_PURGE_DELAY=1000 $(BIN)/python -m pytest $(PYTEST)  # the tests start many processes: each would compile again

lint: $(DEV_READY)  ## check style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

package: $(DEV_READY)  ## build the sdist and the wheel, install the wheel in a clean environment and try it there
	$(BIN)/python -m pytest -n 0 -v --durations=0 tests/package/installed.py

clip: $(DEV_READY)  ## install sentence-transformers and try a real (tiny, untrained) CLIP model
	$(BIN)/pip install --quiet --constraint constraints.txt sentence-transformers
	$(BIN)/python -m pytest -n 0 tests/encoding/clip_model.py

lock: $(DEV_READY)  ## write requirements-lock.txt from pyproject.toml and constraints.txt
	$(BIN)/uv pip compile --quiet --no-config --default-index https://pypi.org/simple --universal --python-version 3.10 \
		--extra dev --extra docs --extra encoders --generate-hashes --constraint constraints.txt --custom-compile-command 'make lock' \
		--output-file requirements-lock.txt pyproject.toml

bench: $(DEV_READY)  ## measure the speed on this machine, compared with a dense reference
	$(BIN)/python -m benchmarks.cpu

docs: $(DOCS_READY)  ## execute the examples and build the documentation into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build
	$(BIN)/python docs/hooks/check.py site

clean:  ## remove the virtual environment and caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .cache site
