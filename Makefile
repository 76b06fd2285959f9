# Needs Python 3.11+ and Java 17+, nothing else. PYTHON=... chooses the interpreter.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.heliograph-setup
# A change is judged by the same draws for everybody: order, examples, faults. Other runs draw their own.
SEED ?= 7
SEEDED = --randomly-seed=$(SEED) --hypothesis-seed=$(SEED)
# Tests with brokers wait more than they compute: on two cores three processes share the files, longest first, each with
# clusters of its own (about 4 GB of memory).
SIDE_BY_SIDE = -n 3 --dist loadfile --no-loadscope-reorder

.PHONY: setup check prepare demo test test-fast test-long test-spark test-fault bench lint

setup: check $(STAMP)

check:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "heliograph needs Python 3.11 or newer, and $(PYTHON) is %d.%d; name another with PYTHON=..." % sys.version_info[:2] or 0)'
	@$(PYTHON) -m heliograph.java

$(STAMP): pyproject.toml constraints.txt | check
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

# Tests start Spark dozens of times, each twice as fast when its classes are kept; without, they are only slower.
prepare: setup
	-$(BIN)/heliograph prepare

# Two clusters, a mirror between them, and the proof that the copy is equal.
demo: setup
	$(BIN)/python -m heliograph.lab.demo

# Everything a change must pass; a skipped test counts as a failure.
test: lint prepare
	$(BIN)/python -m pytest $(SEEDED) --no-skips -n 2 --slowest build/slowest-unit-tests.txt tests/unit
	$(BIN)/python -m pytest $(SEEDED) --no-skips $(SIDE_BY_SIDE) --slowest build/slowest-tests.txt tests/cluster tests/fault

# No brokers, a minute: few examples of property tests, and no slow ones.
test-fast: setup
	$(BIN)/python -m pytest -n 2 -m 'not long and not slow' --hypothesis-profile fast tests/unit

# Repetitions and variants; LONG="-k kills" runs a part. Its report goes to docs/reports.
test-long: prepare
	$(BIN)/python -m pytest --no-skips -m long --timeout 3600 --report docs/reports $(LONG) tests

# The tests on real brokers with every lane on Spark; those of make test have some in forked processes.
test-spark: prepare
	$(BIN)/python -m pytest $(SEEDED) --no-skips $(SIDE_BY_SIDE) --spark --report docs/reports $(LONG) tests/cluster tests/fault

# Two hundred faults, twice; a part of test-long. FAULT_COUNT=50 makes fewer, FAULT_SEED=17 repeats those of a run.
test-fault: prepare
	$(BIN)/python -m pytest --no-skips -m long --report docs/reports $(LONG) tests/fault

bench: setup
	$(BIN)/python -m bench

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m heliograph.config.document --check docs/configuration.md
	$(BIN)/python docs/file_map.py --check
