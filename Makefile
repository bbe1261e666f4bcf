# Every target installs what it needs first; once installed, that step takes no time.
.DEFAULT_GOAL := help
SHELL := /bin/bash

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
COMPILE = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12

setup: $(READY) ## Install everything into .venv (the other targets do this themselves)

$(READY): requirements/all.lock requirements/installer.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "error: Python 3.11 or newer is required; set PYTHON=/path/to/python3.11"; exit 1; }
	@echo "Setting up $(VENV): Python packages (about 700 MB, once)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/installer.lock
	@$(BIN)/uv pip sync --compile-bytecode --python $(BIN)/python --require-hashes requirements/all.lock
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
	@$(BIN)/python -m compileall -q headgate
	@$(BIN)/headgate jars spark
	@touch $(READY)

demo: $(READY) ## Land simulated games in Delta tables while their schemas change; needs no server
	@$(BIN)/headgate demo

test: $(READY) ## Run all tests, with a real broker, registry, database, Spark and Delta
	@requirements/install-mariadb.sh
	@$(BIN)/headgate jars spark s3 kafka registry
	@$(BIN)/python -m headgate.lab.airflow & airflow=$$!; $(BIN)/python -m headgate.lab.object_store && wait $$airflow
	@$(BIN)/python -m pytest --numprocesses=2 --dist=loadscope $(ARGS)

search: ## Run the property tests with new random examples
	@$(MAKE) --no-print-directory test ARGS="-m hypothesis --hypothesis-profile=search $(ARGS)"

soak: ## Run the long tests (hours) and print what they measured
	@$(MAKE) --no-print-directory test ARGS="-m soak --timeout=0 -raP $(ARGS)"

check: $(READY) ## Check formatting, lint and types
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy

bench: $(READY) ## Run the benchmarks, with alternatives measured on the same data
	@$(BIN)/headgate jars spark kafka registry
	@$(BIN)/python -m bench $(ARGS)

docs: $(READY) ## Generate the pages of docs/reference
	@$(BIN)/python docs/generate.py

lock: $(READY) ## Update the *.lock files to the newest versions that are allowed
	@$(COMPILE) --upgrade requirements/installer.in -o requirements/installer.lock
	@$(COMPILE) --upgrade requirements/simulated-storage.in -o requirements/simulated-storage.lock
	@$(COMPILE) --upgrade requirements/airflow.in -o headgate/lab/airflow.lock
	@$(COMPILE) --upgrade --extra databricks --extra lab --extra serve --extra models --group dev pyproject.toml -o requirements/all.lock

clean: ## Remove generated files, but not .venv
	@rm -rf .demo .bench .pytest_cache .mypy_cache .ruff_cache .hypothesis

.PHONY: help setup demo test search soak check bench docs lock clean
