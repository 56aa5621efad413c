# `make test` and `make demo` need python3 (3.11 or newer), make and a network; everything else they bring themselves.

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help venv test demo check bench storm lock pictures schema reference clean

PYTHON := .venv/bin/python
PIP := $(PYTHON) -m pip install -q --disable-pip-version-check
READY := .venv/.ready
JOBS ?= $(shell getconf _NPROCESSORS_ONLN)
ARGS ?=

help:  ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' Makefile
	@echo
	@echo '  ARGS="..." goes to the program behind the target: make demo ARGS="--seconds 10"'

venv: $(READY)  ## .venv with the pinned packages and sereno itself; every target below makes it when it must

test: $(READY)  ## every test but the storms
	@tools/bring_chromium
	@$(PYTHON) -m pytest -n $(JOBS) --dist worksteal -m "not storm" $(ARGS)

demo: $(READY)  ## see it work, with a PostgreSQL of its own
	@.venv/bin/sereno demo $(ARGS)

check: $(READY)  ## lint, format, types, and which floor may lean on which
	@echo "ruff check" && $(PYTHON) -m ruff check --quiet
	@echo "ruff format" && $(PYTHON) -m ruff format --check --quiet
	@echo "mypy" && $(PYTHON) -m mypy
	@echo "lint-imports" && $(PYTHON) -c 'from importlinter.cli import lint_imports_command as run; run()' >.venv/.imports \
		|| { cat .venv/.imports; exit 1; }

bench: $(READY)  ## the benchmarks, quickly; ARGS chooses others
	@$(PYTHON) -m bench $(or $(ARGS),all --quick)

storm: $(READY)  ## minutes of faults and load
	@$(PYTHON) -m pytest -m storm --timeout 3600 $(ARGS)

pictures: $(READY)  ## take the pictures of the documentation anew, of the demo at work
	@SERENO_TEST_PICTURES=docs/pictures $(PYTHON) -m pytest -q tests/server/web/test_demo.py -k at_work

schema: $(READY)  ## write src/sereno/database/schema.sql anew, after a migration was added
	@$(PYTHON) -m tools.dump_schema

reference: $(READY)  ## write docs/reference/api.md anew, after an operation of the API was added
	@$(PYTHON) -m tools.api_reference

lock:  ## choose and pin the versions in requirements.txt; ARGS=--upgrade takes the newest of everything
	@set -e; directory=$$(mktemp -d); trap 'rm -rf "$$directory"' EXIT; \
	tools/make_venv "$$directory/venv"; \
	"$$directory/venv/bin/python" -m pip install -q --disable-pip-version-check uv==0.13.7; \
	echo "resolving"; \
	"$$directory/venv/bin/uv" pip compile pyproject.toml --extra dev --universal --python-version 3.11 \
		--generate-hashes --quiet --custom-compile-command "make lock" --output-file requirements.txt $(ARGS)

clean:  ## remove what these targets made, but no database
	@rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist build
	@find src tests bench tools -name __pycache__ -type d -prune -exec rm -rf {} +

$(READY): requirements.txt pyproject.toml tools/make_venv
	@tools/make_venv .venv
	@echo "installing the pinned packages into .venv"
	@$(PIP) --require-hashes -r requirements.txt
	@echo "installing sereno into .venv"
	@$(PIP) --no-build-isolation --no-deps -e .
	@touch $@
