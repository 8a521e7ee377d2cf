# Every target makes its own virtual environment in .venv when there is none; nothing else needs to be installed.
PYTHON ?= python3
# Test processes, each with one thread: more threads would wait for one another, and of three processes one often waits.
JOBS ?= 3
MINUTES ?= 5
BIN := .venv/bin
# The scripts, not the modules that they share; some need clips or a model that the repository does not have.
NEED_FILES := $(patsubst %,benchmarks/%.py,tune deq_choose noisy_snapshots train_designs zoo_publish)
BENCHMARKS := $(filter-out $(NEED_FILES),$(sort $(shell grep -ls __main__ benchmarks/*.py)))

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test lint fuzz bench docs clean

help:  ## list the targets
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' Makefile

demo: .venv/.ready  ## a rendered high-speed scene, snapped and reconstructed: videos, picture and table in demo/
	$(BIN)/unsnap demo -o demo --force

# Bytecode is kept even where the environment says otherwise: each command in a process of its own would compile our source.
test: lint  ## linters, types and all tests: what .ci/run runs
	PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/pytest -q -n $(JOBS) --dist worksteal

lint: .venv/.ready  ## ruff (lint and format) and mypy --strict
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Findings stay in fuzz-findings/, each with its command: --replay runs them again.
fuzz: .venv/.ready  ## hostile files against every reader for MINUTES=5: table, and reproducers in fuzz-findings/
	OMP_NUM_THREADS=1 PYTHONPATH=tests $(BIN)/python -m hostile.fuzz --minutes $(MINUTES) --jobs $(JOBS) $(if $(GUIDED),--guided)

bench: .venv/.ready  ## speed, memory and scale, printed as ratios
	@set -e; for script in $(BENCHMARKS); do echo "== $$script"; $(BIN)/python "$$script"; done

# Not --quiet: that would silence the warnings which --strict turns into errors.
docs: .venv/.ready  ## the cookbook as a web site in site/, readable without a network
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "open site/index.html"

# Measurements in bench-results/ are left alone: they cannot be made again by rebuilding.
clean:  ## remove .venv, caches and build products
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache build dist site demo src/*.egg-info
	find src tests benchmarks examples docs -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/.ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { \
	  echo "unsnap needs Python 3.10 or newer, and $(PYTHON) is not that; name another: make PYTHON=python3.12" >&2; exit 1; }
	@echo "Making .venv (once; torch is large, this takes a while) ..."
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@
