# Moldau. A bare `make` prints what there is; every target installs what it needs, and no more, into `.venv`.
#
# `uv` is used where it is on the PATH, else venv and pip. GNU make 3.81 (macOS) is enough.
SHELL := /bin/bash
VENV := .venv
BIN := $(VENV)/bin

# Nothing is compiled to bytecode when it is installed: a tenth of it is ever imported, and the first import compiles that.
# Without any, each of the many Python processes of a test run would compile it anew.
unexport PYTHONDONTWRITEBYTECODE

VERSION := 'import sys; print("%d.%d" % sys.version_info[:2])'
PIN := --quiet --constraint constraints.txt
LOCK := pip compile --quiet --universal --upgrade --all-extras --no-header --no-annotate pyproject.toml --output-file constraints.txt

# The sets are extras of pyproject.toml. Each leaves a stamp, so that a second make installs nothing.
QUICKSTART := $(VENV)/.installed-quickstart
DEMO := $(VENV)/.installed-demo
LINT := $(VENV)/.installed-lint
TEST := $(VENV)/.installed-test
DIST := $(VENV)/.installed-dist
DEV := $(VENV)/.installed-dev

.DEFAULT_GOAL := help
.PHONY: help setup same-python demo quickstart test unit deep fuzz simulate interop spark examples chaos coverage lint format bench bench-groups bench-cluster bench-transactions bench-spark bench-startup bench-edits scale screenshots dist lock clean

help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(DEV) ## make .venv with everything, at the pinned versions; PYTHON=python3.12 chooses the Python

$(BIN)/python:
	@rm -rf $(VENV)
	@if command -v uv >/dev/null; then uv venv --quiet $(if $(PYTHON),--python $(PYTHON)) $(VENV); else \
		$(or $(PYTHON),python3) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Moldau needs Python 3.11 or later; this is $$($(or $(PYTHON),python3) --version 2>&1). Try: make PYTHON=python3.12" >&2; exit 1; }; \
		$(or $(PYTHON),python3) -m venv $(VENV); fi

same-python:
	@[ -z "$(PYTHON)" ] || [ "$$($(PYTHON) -c $(VERSION))" = "$$($(BIN)/python -c $(VERSION))" ] || \
		{ echo "$(VENV) has Python $$($(BIN)/python -c $(VERSION)), not that of PYTHON=$(PYTHON): run make clean first" >&2; exit 1; }

$(VENV)/.installed-%: pyproject.toml constraints.txt $(BIN)/python | same-python
	@echo "installing into $(VENV) what $* needs"
	@if command -v uv >/dev/null; then uv pip install $(PIN) --python $(BIN)/python --editable '.[$*]'; else \
		$(BIN)/python -m pip --version >/dev/null 2>&1 || $(BIN)/python -m ensurepip >/dev/null; \
		$(BIN)/python -m pip install $(PIN) --disable-pip-version-check --no-compile --editable '.[$*]'; fi
	@touch $@

demo: $(DEMO) ## a bookstore: broker, events, a pipeline on Spark, new topics, a lake table, a report
	$(BIN)/python examples/bookstore/demo.py

quickstart: $(QUICKSTART) ## start a broker, create a topic, produce and consume with three clients
	$(BIN)/python examples/quickstart/demo.py

test: $(TEST) ## lint, types and all tests, and at the end what they cost in CPU seconds against the budget
	@$(MAKE) --no-print-directory lint
	@$(BIN)/python tests/runner/run.py

unit: $(TEST) ## the tests without sockets, in seconds
	$(BIN)/python -m pytest tests/unit tests/node tests/scripts tests/tidy

deep: $(TEST) ## what make test only samples: DEPTH=10 times as many random inputs, every crash, all defects of the simulations, and the dear tests
	MOLDAU_TEST_DEPTH=$(or $(DEPTH),10) $(BIN)/python -m pytest tests/unit tests/node tests/simulation tests/interop tests/spark tests/dist

fuzz: $(TEST) ## mutated requests, batches, SASL exchanges, certificates and files: CASES=1000000 SEED=0 JOBS=1 WHAT=sasl
	$(BIN)/python tests/fuzz/fuzz.py --cases $(or $(CASES),1000000) --seed $(or $(SEED),0) --jobs $(or $(JOBS),1) $(if $(WHAT),--target '$(WHAT)')

simulate: $(TEST) ## clusters and groups in virtual time under everything that can befall them: SEEDS=200 SIZE=small WHAT=cluster, on all cores
	$(BIN)/python tests/simulation/simulate.py --seeds $(or $(SEEDS),200) --first $(or $(FIRST),0) --size $(or $(SIZE),small) $(if $(WHAT),--what $(WHAT))

interop: $(TEST) ## the tests with real clients and processes
	$(BIN)/python -m pytest tests/interop

spark: $(TEST) ## the tests with a real Spark
	$(BIN)/python -m pytest tests/spark

examples: $(TEST) ## the test cases of every example, and the notebook
	MOLDAU_ALL_EXAMPLES=1 $(BIN)/python -m pytest tests/spark/test_examples.py

chaos: $(TEST) ## kill pipelines' drivers and executors, members of groups, brokers and nodes of clusters, cut and fill and damage what they use, and count what is left (half an hour)
	$(BIN)/python -m pytest -s tests/chaos

coverage: $(TEST) ## how much of the package the tests without sockets run: of the lines and branches
	$(BIN)/coverage run -m pytest -q tests/unit tests/node tests/scripts; tests=$$?; $(BIN)/coverage report --sort=cover && exit $$tests

lint: $(LINT) ## ruff, mypy --strict
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(LINT) ## put the code into its form
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(DEMO) ## measure the broker, beside Apache Kafka where MOLDAU_PEERS names a script that starts it
	$(BIN)/python -m bench.broker

bench-groups: $(DEMO) ## measure groups: joins, heartbeats, commits, loading; beside Apache Kafka as above
	$(BIN)/python -m bench.groups

bench-cluster: $(DEMO) ## measure three nodes: replicated writes, lost leaders, many topics; beside Apache Kafka as above
	$(BIN)/python -m bench.cluster

bench-transactions: $(DEMO) ## measure transactions and the log cleaner, with and without; beside Apache Kafka as above
	$(BIN)/python -m bench.transactions

bench-spark: $(DEMO) ## measure the Spark connector; beside Spark's own with OFFICIAL="--official-python … --official-jars …"
	$(BIN)/python -m bench.spark $(OFFICIAL)

bench-startup: $(DEMO) ## measure what a start of Spark costs: one query, five, the demo; in CPU seconds
	$(BIN)/python -m bench.startup

bench-edits: $(DEMO) ## measure what an edit of a pipeline costs until its effect is seen: validate and test, cold and warm
	$(BIN)/python -m bench.edits

scale: $(DEMO) ## measure whether cost grows with partitions and connections
	$(BIN)/python -m bench.scale

screenshots: $(TEST) ## write the pictures of docs/console.md; needs playwright and Chromium
	PYTHONPATH=tests $(BIN)/python tests/browser/screenshots.py

dist: $(DIST) ## build the wheel and the source archive into dist/, the same bytes from the same commit
	rm -rf dist
	$(BIN)/python -m hatchling build --target sdist --target wheel

lock: | $(BIN)/python ## pin the newest versions that fit into constraints.txt
	@if command -v uv >/dev/null; then uv $(LOCK); else \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check uv && $(BIN)/uv $(LOCK); fi

clean: ## remove .venv, dist and caches
	rm -rf $(VENV) dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage
