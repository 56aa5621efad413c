# `make test` and `make demo` need python3 (3.11 or newer), make and a network; they install everything else.

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help venv test test-all demo check bench storm storm-nightly soak interleavings mutants
.PHONY: lock pictures schema reference docs clean

PYTHON := .venv/bin/python
READY := .venv/.ready
CORES := $(shell getconf _NPROCESSORS_ONLN)
# All tests: three processes for two cores, because tests wait for databases, processes and browsers.
# The tests of some paths: a process for each core, because the first test starts a second sooner.
JOBS ?= $(if $(filter tests/% examples/%,$(ARGS)),$(CORES),$(shell expr \( 3 \* $(CORES) + 1 \) / 2))
PYTEST := $(PYTHON) -m pytest -p tests.fast_start -n $(JOBS) --dist worksteal
ARGS ?=

help:  ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' Makefile
	@echo
	@echo '  ARGS="..." is passed to the program that the target runs: make demo ARGS="--seconds 10"'

venv: $(READY)  ## create .venv with the pinned packages and sereno; the other targets do this when needed

test: $(READY)  ## run the quick tests of every part: 5 minutes on two cores
	@tools/bring_chromium
	@$(PYTEST) --tier quick $(ARGS)

test-all: $(READY)  ## run the quick and the slow tests: 30 minutes on two cores
	@tools/bring_chromium
	@tools/bring_mariadb
	@tools/bring_prometheus
	@$(PYTEST) --tier all $(ARGS)

demo: $(READY)  ## run the demo on an embedded PostgreSQL
	@.venv/bin/sereno demo $(ARGS)

check: $(READY)  ## check lint, format, types and import direction
	@echo "ruff check" && $(PYTHON) -m ruff check --quiet
	@echo "ruff format" && $(PYTHON) -m ruff format --check --quiet
	@echo "mypy" && $(PYTHON) -m mypy
	@echo "lint-imports" && $(PYTHON) -c 'from importlinter.cli import lint_imports_command as run; run()' >.venv/.imports \
		|| { cat .venv/.imports; exit 1; }

bench: $(READY)  ## run all benchmarks in their quick form; ARGS="NAME" runs one
	@$(PYTHON) -m bench $(or $(ARGS),all --quick)

storm: $(READY)  ## run the storm tests: hours of faults and load, and a million random interleavings
	@$(PYTHON) -m pytest --tier storm --timeout 3600 $(ARGS)
	@$(PYTHON) -m tests.interleavings --random 20000

soak: $(READY)  ## simulate a month of work in less than an hour: nothing may grow
	@$(PYTHON) -m tests.soak $(ARGS)

storm-nightly: $(READY)  ## run the full storm of tests/storm: a million jobs under thousands of faults
	@$(PYTHON) -m tests.storm --jobs 1000000 --kills 2000 --restarts 200 --cuts 300 --freezes 100 $(ARGS)

interleavings: $(READY)  ## search the orders of statements of all scenarios; ARGS="--help" shows the options
	@$(PYTHON) -m tests.interleavings $(ARGS)

mutants: $(READY)  ## break sereno in one place at a time: a test must find each mutant
	@$(PYTHON) -m tests.mutants $(ARGS)

pictures: $(READY)  ## take the screenshots of the documentation from the demo
	@SERENO_TEST_PICTURES=docs/pictures $(PYTHON) -m pytest -q tests/server/web/test_demo.py -k five_systems

schema: $(READY)  ## write src/sereno/database/schema.sql; run it after a new migration
	@$(PYTHON) -m tools.dump_schema

reference: $(READY)  ## write the generated pages of docs/reference; run it after a change of the API, a command, a setting …
	@$(PYTHON) -m tools.api_reference
	@$(PYTHON) -m tools.cli_reference
	@$(PYTHON) -m tools.settings_reference
	@$(PYTHON) -m tools.telemetry_reference
	@$(PYTHON) -m tools.sql_reference

docs: $(READY)  ## build the documentation site into build/site; warnings are errors
	@$(PYTHON) -m tools.build_site

lock:  ## pin the versions in requirements.txt; ARGS=--upgrade takes the newest versions
	@set -e; directory=$$(mktemp -d); trap 'rm -rf "$$directory"' EXIT; \
	tools/make_venv "$$directory/venv"; \
	"$$directory/venv/bin/python" -m pip install -q --disable-pip-version-check "$$(sed -n 's|^\(uv==[^ ]*\).*|\1|p' requirements.txt)"; \
	echo "resolving"; \
	"$$directory/venv/bin/uv" pip compile pyproject.toml --extra dev --universal --python-version 3.11 \
		--generate-hashes --quiet --custom-compile-command "make lock" --output-file requirements.txt $(ARGS)

clean:  ## remove the files that these targets create, except databases
	@rm -rf .venv .pythons .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist build
	@find src tests bench tools -name __pycache__ -type d -prune -exec rm -rf {} +

$(READY): requirements.txt pyproject.toml tools/make_venv tools/install_packages
	@tools/make_venv .venv
	@tools/install_packages .venv
	@touch $@
