PYTHON ?= python3
BIN := .venv/bin
INSTALL := @$(PYTHON) tools/install.py

.DEFAULT_GOAL := help

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: ## install what development needs into .venv
	$(INSTALL) tools

setup-java: # the same, and name the command that installs Java if there is none
	$(INSTALL) test

demo: ## a polite crawl of a small web with Spark, to watch; without Java, with local workers
	$(INSTALL) demo
	@PYTHONPATH=examples $(BIN)/python -m crawl

test: setup-java ## the checks and the suite; needs Java 17
	@$(BIN)/python tools/suite.py default

test-all: test ## and everything at greater length: all engines and facades, long random runs, torture
	@COLD_PLACES=1 $(BIN)/python tools/suite.py exhaustive

quick: setup ## the part of the suite for the inner loop: no Spark, PostgreSQL or processes
	@$(BIN)/python tools/suite.py quick

test-spark: setup-java ## the tests of Spark alone
	@$(BIN)/python -m pytest tests/spark

check: setup ## format, lint, types, layers, generated files
	@$(BIN)/ruff format --check --quiet . || { echo "run 'make format'"; exit 1; }
	@$(BIN)/ruff check --quiet .
	@$(BIN)/python tools/generate.py --check
	@$(BIN)/mypy $(MYPY)
	@$(BIN)/lint-imports --no-logo

format: setup ## format the code and make generated files again
	@$(BIN)/ruff format --quiet .
	@$(BIN)/ruff check --quiet --fix .
	@$(BIN)/python tools/generate.py

generate: format ## the same as format

coverage: setup ## which conformance cases have a test
	@$(BIN)/python tools/conformance.py

bench: ## measure speed next to the peers that can be installed
	$(INSTALL) bench
	@$(BIN)/python -m bench

clean: ## remove what the other targets made
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis build src/*.egg-info

.PHONY: help setup setup-java demo test test-all quick test-spark check format generate coverage bench clean
