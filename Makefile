PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.DEFAULT_GOAL := help

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: $(READY) ## install everything into .venv

$(READY): requirements/dev.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("penstock needs Python 3.11 or later, this is " + sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements/dev.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $(READY)

demo: $(READY) ## a polite crawl of a small web with Spark, to watch; needs Java 17
	@PYTHONPATH=examples $(BIN)/python -m crawl

# Spark often waits for processes of its own, so its tests run beside the others; what they print comes after.
test: check ## format, lint, types, layers and the whole suite
	@mkdir -p build; \
	$(BIN)/python -m pytest tests/spark > build/spark-tests.log 2>&1 & spark=$$!; \
	$(BIN)/python -m pytest -n 2 --dist worksteal --ignore=tests/spark; rest=$$?; \
	wait $$spark; besides=$$?; \
	echo "tests of Spark:"; cat build/spark-tests.log; \
	exit $$((rest || besides))

test-spark: $(READY) ## the tests that start Spark; needs Java 17
	@$(BIN)/python -m pytest tests/spark

check: $(READY) ## everything but the suite
	@$(BIN)/ruff format --check --quiet . || { echo "run 'make format'"; exit 1; }
	@$(BIN)/ruff check --quiet .
	@$(BIN)/python tools/generate.py --check
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo

format: $(READY) ## format the code and make generated files anew
	@$(BIN)/ruff format --quiet .
	@$(BIN)/ruff check --quiet --fix .
	@$(BIN)/python tools/generate.py

generate: format ## the same as format

coverage: $(READY) ## which conformance cases have a test
	@$(BIN)/python tools/conformance.py

bench: $(READY) ## measure speed next to the peers that can be installed
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements/bench.txt
	@$(BIN)/python -m bench

clean: ## remove what the other targets made
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis build src/*.egg-info

.PHONY: help setup demo test test-spark check format generate coverage bench clean
