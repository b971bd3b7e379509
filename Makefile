# What CI does is what these targets do. `make help` lists them.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help run test lint format opinion rust-test wheel bench bench-smoke deep fuzz constraints clean check

PYTHON ?= python3
PIP_VERSION := 26.3
VENV := .venv
BIN := $(VENV)/bin
RUN_VENV := .venv-run
# Work is stolen and not dealt: a few test files take most of the time.
WORKERS := --numprocesses auto --maxprocesses 8 --dist worksteal
# pytest-benchmark looks where the package comes from; nothing here may come from the caller's path.
unexport PYTHONPATH PYTHONHOME VIRTUAL_ENV
export PIP_DISABLE_PIP_VERSION_CHECK := 1

RUST_SOURCES := Cargo.toml Cargo.lock $(shell find rust -name fuzz -prune -o -name '*.rs' -print -o -name Cargo.toml -print)

help: ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

check:
	@scripts/check_prerequisites.sh $(PYTHON)

run: check ## Build into a fresh virtual environment and run the demo
	rm -rf $(RUN_VENV)
	$(PYTHON) -m venv $(RUN_VENV)
	@echo "building runlane (the first time takes a minute or two)"
	$(RUN_VENV)/bin/python -m pip install --quiet --constraint constraints.txt ".[cli]"
	$(RUN_VENV)/bin/runlane demo

# The tools, as pyproject.toml and constraints.txt pin them.
$(VENV)/.tools: pyproject.toml constraints.txt | check
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet pip==$(PIP_VERSION)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --group dev
	touch $@

# The package, editable: Python is read from the tree, the native half is built in place.
$(VENV)/.native: $(VENV)/.tools $(RUST_SOURCES) | check
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m pip install --quiet --constraint constraints.txt --no-build-isolation --editable ".[cli,draw,otel,testing,tokens]"
	touch $@

test: $(VENV)/.native rust-test ## Set everything up and run the whole suite, a worker a processor
	$(BIN)/python -m pytest $(WORKERS)

rust-test: check ## The tests of the Rust core
	cargo test --locked --package runlane-core

lint: $(VENV)/.native ## Formatting, lint, types, layers, and the stub against the binary
	scripts/check_rust_components.sh
	$(BIN)/ruff format --check .
	cargo fmt --all --check
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	MYPYPATH=python $(BIN)/stubtest runlane._native
	cargo clippy --locked --workspace --all-targets -- -D warnings

format: $(VENV)/.tools ## Put every file into its form, and mend what lint can mend
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .
	cargo fmt --all

opinion: $(VENV)/.native ## A second type checker's opinion (informative)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --group opinion
	$(BIN)/basedpyright

wheel: $(VENV)/.tools ## Build sdist and wheel, and prove the wheel in a clean environment
	rm -rf dist
	CARGO_TARGET_DIR="$(CURDIR)/target" $(BIN)/maturin build --sdist --release --locked --out dist
	scripts/prove_wheel.sh $(PYTHON) dist

bench-smoke: $(VENV)/.native ## Run every bench once, to see that it works
	@if compgen -G 'benches/bench_*.py' >/dev/null; then \
	  $(BIN)/python -m pytest benches -o python_files='bench_*.py' -o python_functions='bench_* test_*'; \
	else echo "there are no benches"; fi

bench: $(VENV)/.native ## Measure runlane beside its peers, and print the table
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --group peers
	$(BIN)/python -m benches

deep: $(VENV)/.native ## Look for unknown faults with many new examples
	HYPOTHESIS_PROFILE=deep $(BIN)/python -m pytest $(WORKERS) --timeout=1800

fuzz: check ## Fuzz every target of the core (SECONDS_PER_TARGET=60)
	scripts/fuzz.sh $(or $(SECONDS_PER_TARGET),60)

constraints: check ## Write constraints.txt anew from the newest versions that fit pyproject.toml
	rm -rf .venv-constraints
	$(PYTHON) -m venv .venv-constraints
	.venv-constraints/bin/python -m pip install --quiet pip==$(PIP_VERSION)
	.venv-constraints/bin/python -m pip install --quiet --group dev --group opinion --group peers ".[cli,draw,otel,testing,tokens]"
	{ echo "# Written by \`make constraints\`: the exact versions that development and CI use."; \
	  .venv-constraints/bin/python -m pip freeze --exclude runlane; } > constraints.txt
	rm -rf .venv-constraints

clean: ## Remove what was built
	rm -rf dist target rust/fuzz/target $(VENV) .venv-* .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .benchmarks .hypothesis
	find python tests benches scripts -name __pycache__ -type d -prune -exec rm -rf {} +
	rm -f python/runlane/_native*.so
