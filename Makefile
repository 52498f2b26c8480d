# Every target sets itself up in .venv, from a fresh clone with nothing but Python >= 3.11 and make.
.DEFAULT_GOAL := help
.PHONY: help demo test test-all fuzz lint fmt clean

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
LOOK := for p in python3.12 python3.13 python3.11 python3; do \
	  if $$p -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' \
	     >/dev/null 2>&1; then echo $$p; break; fi; done
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input

help: ## show this list
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST)

demo: $(INSTALLED) ## the main job on real input: derive, emit, assemble, run, compare
	@$(BIN)/python examples/demo.py

test: lint ## lint, types, the wheel, and all tests but the exhaustive matrix
	$(BIN)/python tests/check_wheel.py
	$(BIN)/python -m pytest -n 2 --dist worksteal

test-all: lint ## the same with the exhaustive matrix
	$(BIN)/python tests/check_wheel.py
	$(BIN)/python -m pytest -n 2 --dist worksteal -m ""

N := 200
BACKEND := sim
fuzz: $(INSTALLED) ## N cases that nobody thought of, N=200 unless given; BACKEND=gpu on a GPU
	$(BIN)/python -m tests.fuzz -n $(N) --backend $(BACKEND)

lint: $(INSTALLED) ## ruff's check and format check, and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

fmt: $(INSTALLED) ## format all files, and fix what ruff can fix
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## remove .venv and everything built
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# installed anew only when pyproject.toml changes
$(INSTALLED): pyproject.toml
	@python=$$($(LOOK)); test -n "$$python" || { \
	  echo "no Python >= 3.11 with venv: install python3.12 and python3.12-venv" >&2; exit 1; }; \
	  echo "setting up $(VENV) with $$($$python --version)"; $$python -m venv $(VENV)
	@$(PIP) install --quiet --editable '.[dev]'
	@touch $@
