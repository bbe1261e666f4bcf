# Every command sets up what it needs first; the second time that takes no time.
.DEFAULT_GOAL := help
SHELL := /bin/bash

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12

setup: $(READY) ## Install everything into .venv (the other commands do it by themselves)

$(READY): requirements/all.lock requirements/installer.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "error: Python 3.11 or newer is needed; set PYTHON=/path/to/python3.11"; exit 1; }
	@echo "Setting up $(VENV): Python packages (about 700 MB, once)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/installer.lock
	@$(BIN)/uv pip sync --compile-bytecode --python $(BIN)/python --require-hashes requirements/all.lock
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
	@$(BIN)/python -m compileall -q headgate
	@$(BIN)/headgate jars spark
	@touch $(READY)

demo: $(READY) ## Land simulated games in Delta tables while their schemas change; no server needed
	@$(BIN)/headgate demo

test: $(READY) ## Run all tests on a real broker, registry, database, Spark and Delta
	@requirements/install-mariadb.sh
	@$(BIN)/headgate jars spark kafka registry
	@$(BIN)/python -m pytest $(ARGS)

search: ## Run the tests of random cases on cases that were never tried
	@$(MAKE) --no-print-directory test ARGS="-m hypothesis --hypothesis-profile=search $(ARGS)"

check: $(READY) ## Formatting, lint and types
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy

bench: $(READY) ## Measure, beside other ways of doing the same, on the same data in one run
	@$(BIN)/headgate jars spark kafka registry
	@$(BIN)/python -m bench $(ARGS)

docs: $(READY) ## Write the generated pages of docs/reference anew
	@$(BIN)/python docs/generate.py

lock: ## Choose the newest packages that fit pyproject.toml and record their hashes
	@uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	  --upgrade requirements/installer.in -o requirements/installer.lock
	@uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	  --upgrade --group dev pyproject.toml -o requirements/all.lock

clean: ## Remove what the commands made, but not .venv
	@rm -rf .demo .bench .pytest_cache .mypy_cache .ruff_cache .hypothesis

.PHONY: help setup demo test search check bench docs lock clean
