# Everything runs in a virtual environment of its own, made on first use.
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
STAMP := $(VENV)/.ready-to-work

.PHONY: run test engines lint generate bench docs sim soak clean

# The main job in one command: a program run under a lock on the embedded store.
run: $(INSTALLED)
	$(BIN)/holdfast run demo -- sh -c 'echo "I hold $$HOLDFAST_KEY with fence $$HOLDFAST_FENCE"'

# Most tests wait more than they compute, so there are more workers than cores.
test: $(STAMP) lint engines
	$(BIN)/pytest -n 3 --dist worksteal

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
	$(BIN)/mkdocs build --strict

clean:
	rm -rf $(VENV) site dist

# What a user installs, and what is needed beside it to work on Holdfast.
$(INSTALLED): pyproject.toml
	python3 -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet -e .
	touch $(INSTALLED)

$(STAMP): $(INSTALLED)
	$(BIN)/pip install --quiet -e '.[test,lint,docs]'
	touch $(STAMP)
