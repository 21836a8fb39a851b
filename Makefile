# Moldau. A bare `make` prints what there is; every target sets up `.venv` by itself.
SHELL := /bin/bash
.SHELLFLAGS := -o pipefail -c
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: help setup demo quickstart test test-front test-back unit deep simulate interop spark examples chaos lint format bench bench-groups bench-cluster bench-transactions bench-spark scale lock clean

help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY) ## make .venv with everything, at the pinned versions

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Moldau needs Python 3.11 or later; this is $$($(PYTHON) --version). Try: make PYTHON=python3.12" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@

demo: $(READY) ## a bookstore: broker, events, a pipeline on Spark, new topics, a lake table, a report
	$(BIN)/python examples/bookstore/demo.py

quickstart: $(READY) ## start a broker, create a topic, produce and consume with three clients
	$(BIN)/python examples/quickstart/demo.py

test: lint $(READY) ## lint, types and all tests: two runs side by side, each takes the next test file when it is free
	@claims=$$(mktemp -d) && trap 'rm -r "$$claims"' EXIT && \
	MOLDAU_TEST_CLAIMS="$$claims" $(MAKE) --no-print-directory --jobs 2 --keep-going test-front test-back

TEST_RUN = PYTHONDONTWRITEBYTECODE= $(BIN)/python -u -m pytest -q -o console_output_style=classic

test-front test-back: test-%: $(READY)
	@MOLDAU_TEST_FROM=$* $(TEST_RUN) | while IFS= read -r line; do echo "$*: $$line"; done

unit: $(READY) ## the tests without sockets, in seconds
	$(BIN)/python -m pytest tests/unit tests/scripts tests/tidy

deep: $(READY) ## the tests without sockets, with DEPTH=10 times as many random inputs
	MOLDAU_TEST_DEPTH=$(or $(DEPTH),10) $(BIN)/python -m pytest tests/unit

simulate: $(READY) ## clusters and groups in virtual time under everything that can befall them: SEEDS=200 SIZE=small WHAT=cluster, on all cores
	$(BIN)/python tests/simulation/simulate.py --seeds $(or $(SEEDS),200) --first $(or $(FIRST),0) --size $(or $(SIZE),small) $(if $(WHAT),--what $(WHAT))

interop: $(READY) ## the tests with real clients and processes
	$(BIN)/python -m pytest tests/interop

spark: $(READY) ## the tests with a real Spark
	$(BIN)/python -m pytest tests/spark

examples: $(READY) ## the test cases of every example, and the notebook
	MOLDAU_ALL_EXAMPLES=1 $(BIN)/python -m pytest tests/spark/test_examples.py

chaos: $(READY) ## kill pipelines' drivers and executors, members of groups, brokers and nodes of clusters, and count what is left (half an hour)
	$(BIN)/python -m pytest -s tests/chaos

lint: $(READY) ## ruff, mypy --strict
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY) ## put the code into its form
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY) ## measure the broker, beside Apache Kafka where MOLDAU_PEERS names a script that starts it
	$(BIN)/python -m bench.broker

bench-groups: $(READY) ## measure groups: joins, heartbeats, commits, loading; beside Apache Kafka as above
	$(BIN)/python -m bench.groups

bench-cluster: $(READY) ## measure three nodes: replicated writes, lost leaders, many topics; beside Apache Kafka as above
	$(BIN)/python -m bench.cluster

bench-transactions: $(READY) ## measure transactions and the log cleaner, with and without; beside Apache Kafka as above
	$(BIN)/python -m bench.transactions

bench-spark: $(READY) ## measure the Spark connector; beside Spark's own with OFFICIAL="--official-python … --official-jars …"
	$(BIN)/python -m bench.spark $(OFFICIAL)

scale: $(READY) ## measure whether cost grows with partitions and connections
	$(BIN)/python -m bench.scale

lock: $(READY) ## pin the newest versions that fit into constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	$(BIN)/uv pip compile --quiet --universal --extra dev --extra all --no-header --no-annotate pyproject.toml --output-file constraints.txt

clean: ## remove .venv and caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
