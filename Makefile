# Everything runs in a virtual environment of its own, made on first use.
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
STAMP := $(VENV)/.ready-to-work

# Containers often have Python keep no bytecode. Then each of the thousands of interpreters and
# workers that the tests start would compile Holdfast, and the tests, for itself.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run test test-all engines lint generate bench docs sim soak dist sbom clean

# The main job in one command: a program run under a lock on the embedded store.
run: $(INSTALLED)
	$(BIN)/holdfast run demo -- sh -c 'echo "I hold $$HOLDFAST_KEY with fence $$HOLDFAST_FENCE"'

# Most tests wait more than they compute, so there are more workers than cores. What fails is run
# once more, alone: a test that fails only beside others is printed, and one that fails twice counts.
# The limits are for a run that hangs at its end; a test that hangs is ended before (pyproject.toml).
test: $(STAMP) lint engines
	timeout --foreground 45m $(BIN)/pytest -n 4 --dist worksteal \
		|| timeout --foreground 15m $(BIN)/pytest --last-failed --last-failed-no-failures none

# Before a release, for hours: everything here, and on every other Python from 3.11 to 3.14 that is
# on this machine; the fast part with the lowest versions of the dependencies; each extra in an
# environment of its own; 0.1.0 and this on one store; Airflow and Prefect.
test-all: $(STAMP) engines
	$(BIN)/python -m tests.everywhere lowest -n 2
	$(BIN)/python -m tests.extras
	$(BIN)/python -m tests.side_by_side
	$(BIN)/python -m tests.workflows
	$(MAKE) test
	$(BIN)/python -m tests.everywhere whole others -n 4 --dist worksteal

# The servers that the tests start for themselves, installed by package name where we are root.
engines: $(STAMP)
	$(BIN)/python -m tests.engines

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python tools/async_to_sync.py --check

# Blocking modules are made of async ones; what is made is checked in.
generate: $(STAMP)
	$(BIN)/python tools/async_to_sync.py

# Histories of the simulator that nobody has seen yet; the first one that breaks a rule is
# shrunk and printed, with the command that replays it. `make sim MINUTES=60` goes on for longer;
# a soak is `make sim HISTORIES=1000000`, which takes hours.
MINUTES ?= 5
JOBS ?= 0
sim: $(STAMP)
	$(BIN)/python -m holdfast.testing.sim --jobs $(JOBS) \
		$(if $(HISTORIES),--count $(HISTORIES),--minutes $(MINUTES))

# Processes that are killed, stopped and forked while they share locks: in an SQLite file, or in
# the store of `make soak URL=…`.
soak: $(STAMP)
	$(BIN)/python -m tests.soak $(URL) --seconds $(SECONDS)
SECONDS ?= 60

bench: $(STAMP) engines
	$(BIN)/pip install --quiet -e '.[bench]'
	$(BIN)/python -m benchmarks

docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# What is released: the sdist, the wheel that is built from it, and what twine has to say of both.
dist: $(STAMP)
	rm -rf dist
	$(BIN)/python -m build
	$(BIN)/twine check --strict dist/*

# The bill of materials: all that the wheel brings with every extra for users, with versions and
# licences, as CycloneDX.
sbom: dist
	python3 -m venv --clear --without-pip $(VENV)/sbom
	$(BIN)/pip --python $(VENV)/sbom install --quiet \
		"$$(echo dist/*.whl)[$$($(BIN)/python -m tests.extras --names)]"
	$(BIN)/python -c 'import holdfast; print("/dynamic/c version =", repr(holdfast.__version__))' | \
		sed -f /dev/stdin pyproject.toml > $(VENV)/sbom/pyproject.toml
	mkdir -p sbom
	$(BIN)/cyclonedx-py environment --pyproject $(VENV)/sbom/pyproject.toml --mc-type library \
		--output-reproducible --output-file sbom/holdfast.cdx.json $(VENV)/sbom

clean:
	rm -rf $(VENV) site dist sbom

# What a user installs, and what is needed beside it to work on Holdfast.
$(INSTALLED): pyproject.toml
	python3 -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet -e .
	touch $(INSTALLED)

$(STAMP): $(INSTALLED)
	$(BIN)/pip install --quiet -e '.[test,lint,docs]'
	touch $(STAMP)
