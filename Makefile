# Two commands set everything up: `make demo` and `make test`. Nothing here needs a GPU but `make evidence`.

PYTHON ?= python3
WORKERS ?= 2
TOPIC ?= first-profile
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.DEFAULT_GOAL := help
.PHONY: help demo test test-full lint gate docs evidence clean

help:
	@echo "make demo              install into .venv and profile one kernel"
	@echo "make test              install into .venv and run the tests (minutes)"
	@echo "make test-full         the slow tests too"
	@echo "make lint              ruff, mypy, the import contract, the example workflows"
	@echo "make gate              compare dgw's kernels with perf/baselines: no GPU, seconds"
	@echo "make docs              rewrite the generated tables of README.md and docs/"
	@echo "make evidence TOPIC=x  on a GPU machine: measure what docs/h200/x.json holds"

demo: .venv/core
	$(BIN)/dgw profile --variant swizzled --shape 4096x4096x4096

test: .venv/dev
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "not slow"

test-full: .venv/dev
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

lint: .venv/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.github-workflows docs/ci/github-*.yml
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.gitlab-ci docs/ci/gitlab-ci.yml

gate: .venv/core
	$(BIN)/dgw gate --exact --suite ci

docs: .venv/core
	$(BIN)/python docs/generate.py

evidence:
	$(PYTHON) evidence/$(TOPIC).py

clean:
	rm -rf .venv .dgw build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache

# Files that say what was installed; they are older than pyproject.toml when it has to be done again.
.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/core: pyproject.toml constraints.txt | .venv/bin/python
	$(PIP) --editable .
	@touch $@

# The tests need CPU tensors of torch only; constraints.txt pins the release whose CPU build they are run with.
.venv/dev: pyproject.toml constraints.txt | .venv/bin/python
	$(PIP) --editable ".[dev]"
	@touch .venv/core $@
