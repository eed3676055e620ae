# SparseRL. `make repro` runs the main job, `make test` the tests; both set up .venv first.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
PYTHON ?= python3
export PATH := $(CURDIR)/.venv/bin:$(PATH)
export DVC_NO_ANALYTICS := 1
export DO_NOT_TRACK := true
export PYTHONUNBUFFERED := 1

.PHONY: help setup repro test check format clean

help: ## show the targets
	@grep -E '^[a-z-]+:.*## ' Makefile | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 12

.venv/.ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python >= 3.11 is needed, found " + sys.version.split()[0])'
	$(PYTHON) -m venv .venv
	.venv/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch .venv/.ready

setup: .venv/.ready ## make .venv from the pinned requirements

repro: setup ## the main job: data, models, tables, report (no GPU needed)
	python -m dvc repro
	@echo "report: data/report/index.html"

test: check ## everything: format, lint, types and all tests
	python -m pytest -m 'slow and not gpu'

check: setup ## format, lint, types, tests
	python -m ruff format --check .
	python -m ruff check .
	python -m mypy
	python -m pytest -n auto --dist loadfile -m 'not slow and not gpu'

format: setup ## rewrite the code in the house style
	python -m ruff format .
	python -m ruff check --fix .

clean: ## remove what the pipeline made (matrices, models, report); keeps the environment and the record
	rm -rf data/matrices data/corpus data/pairs data/models data/metrics data/evaluation data/report data/quality .cache
