# Every command of this repository. `make demo` and `make test` set a fresh machine up by themselves.
.DEFAULT_GOAL := demo

VENV   := .venv
PYTHON := $(VENV)/bin/python
READY  := $(VENV)/.ready
# Twice as many as there are processors: tests wait a good deal.
RUNNERS := $(shell expr $$(getconf _NPROCESSORS_ONLN) \* 2)
# Groups of tests that share a server go to one worker, the longest first (tests/support/scheduling.py).
PYTEST := $(PYTHON) -m pytest -n $(RUNNERS) --dist loadscope

TEST_READY := $(READY) engines

# What needs an engine, or other projects' packages, has targets of its own.
OTHERS := not containers and not swarm and not kubernetes and not ray and not trainers and not packaging and not packages
ALL := $(OTHERS) and not compat
SELECTION := $(ALL) and not extended
CORE := not upper and not slow and $(SELECTION)

# What is compiled once is kept: tests start hundreds of interpreters.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help demo engines escapes test test-core test-changed test-extended test-all test-repeat \
	test-compat test-packages test-packaging test-pythons test-trainers test-containers test-images \
	test-swarm test-kubernetes test-ray durations coverage planted-faults fuzz print-selection conformance \
	check audit format bench league docs drawings notebooks mirrors lock release badges site site-serve clean

help:  ## list these targets
	@awk -F ':.*## ' '/^##@ / { printf "\n%s\n", substr($$0, 5) } \
		/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

##@ The four that matter

demo: $(READY)  ## train a policy on blackjack over 64 concurrent sessions
	$(VENV)/bin/openenv demo

test-core: $(TEST_READY)  ## test the contract, the wire, servers and clients: a minute
	$(PYTEST) -m "$(CORE)"

test: $(TEST_READY)  ## show every promise once: what a change must pass, some minutes
	$(PYTEST) -m "$(SELECTION)"

check: $(READY)  ## lint, types, generated files, known vulnerabilities; quick if little has changed
	$(PYTHON) scripts/check.py

##@ More tests

BASE ?= $(shell git merge-base HEAD origin/main 2>/dev/null || git merge-base HEAD main)
test-changed: $(TEST_READY)  ## all tests of what has changed since BASE, by default since the merge base
	OPENENV_TESTS=all $(PYTEST) -m "$(OTHERS)" --changed "$(BASE)"

test-extended: $(TEST_READY)  ## what `make test` leaves out: environments, long runs, full crossings
	OPENENV_TESTS=all $(PYTEST) -m "$(ALL) and extended"

test-all: $(TEST_READY)  ## everything that this machine can run, and what it could not, and why
	$(PYTHON) scripts/test_all.py

RUNS ?= 20
BUSY ?= 6
test-repeat: $(TEST_READY)  ## `make test` RUNS times, BUSY of them beside a busy loop on each core
	$(PYTHON) scripts/repeat.py --runs $(RUNS) --busy $(BUSY)

PYTHONS ?= 3.10 3.12 3.13 3.14
test-pythons: $(TEST_READY)  ## `make test` on every other Python that this machine has
	RUNNERS=$(RUNNERS) MARKS="$(SELECTION)" scripts/pythons $(PYTHONS)

planted-faults: $(TEST_READY)  ## plant faults into the core, and see that `make test` notices each
	$(PYTHON) tests/planted_faults/run.py

SECONDS_EACH ?= 300
fuzz: $(READY)  ## look for inputs that break something: SECONDS_EACH for each of TARGETS, by default all
	$(PYTHON) scripts/install.py $(PYTHON) --require-hashes -r tests/fuzz/requirements.lock
	$(PYTHON) tests/fuzz/run.py $(TARGETS) --seconds $(SECONDS_EACH)

durations: $(TEST_READY)  ## run everything once and record what it costs: tests/durations.json, a plot
	OPENENV_TESTS=all $(PYTHON) scripts/durations.py -- -n $(RUNNERS) --dist loadscope -m "$(ALL)"

coverage: $(TEST_READY)  ## line coverage of src by `make test`, subprocesses included
	SELECTION="$(SELECTION)" RUNNERS=$(RUNNERS) scripts/coverage

print-selection:
	@echo "$(SELECTION)"

##@ Tests with engines, and with other projects' packages

test-compat: $(TEST_READY)  ## with the public package, and programs of npm
	$(PYTEST) -m "$(OTHERS) and compat"

test-packages: $(TEST_READY)  ## with other projects' packages, each in a virtual environment of its own
	$(PYTEST) -m packages

test-packaging: $(READY)  ## wheels, extras, lowest versions, each Python that this machine has
	$(PYTHON) -m pytest --durations 0 -m packaging tests/distributions

test-trainers: $(TEST_READY)  ## with the trainers themselves, each in a virtual environment of its own
	$(PYTHON) -m pytest -m trainers

test-containers: $(READY)  ## on a real engine: Podman, which is installed by apt
	scripts/containers
	$(PYTHON) -m pytest -m containers tests/providers/containers tests/sandbox/containers \
		tests/validation/containers

test-images: $(READY)  ## build images of environments by Podman, and run them
	scripts/containers
	$(PYTHON) -m pytest -m containers tests/images/containers tests/docs/test_ten_minutes.py

test-kubernetes: $(READY)  ## on a real API server, which is built once, with pods that Podman plays
	scripts/kubernetes
	$(PYTHON) -m pytest -m kubernetes tests/providers/kubernetes

test-swarm: $(READY)  ## on Docker's engine, with a swarm of this machine
	scripts/containers
	scripts/dockerd $(PYTHON) -m pytest -m "containers or swarm" tests/providers/containers tests/providers/swarm

test-ray: $(READY)  ## on a cluster of Ray with three nodes, on this machine
	scripts/ray

conformance: $(READY)  ## with the official MCP suite; writes docs/reference/mcp-conformance.md
	$(PYTHON) scripts/conformance.py

escapes: $(READY)  ## every way out of every kind of sandbox; writes docs/reference/sandbox-escapes.md
	$(PYTHON) scripts/escapes.py

badges: $(READY)  ## validate our environments in containers; writes their badges and a table
	scripts/containers
	CONTAINERS_CONF=$(CURDIR)/.containers/containers.conf $(PYTHON) scripts/badges.py -- \
		--base localhost/openenv-test-base:latest --network host \
		--ca-file /etc/ssl/certs/ca-certificates.crt

engines:  ## install the programs that tests use, by apt: bubblewrap, Stockfish, Chromium
	scripts/engines

##@ Writing and checking

format: $(READY)  ## mend what can be mended of lint and format
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

audit: $(READY)  ## known vulnerabilities; fails where they cannot be looked up
	$(PYTHON) scripts/audit.py --strict

bench: $(READY)  ## measure against the public package; writes benchmarks/RESULTS.md
	$(PYTHON) benchmarks/peer.py
	-$(PYTHON) benchmarks/import_cost.py --install
	$(PYTHON) benchmarks/run.py

league: $(READY)  ## measure against what one would pick instead; an hour; writes benchmarks/RESULTS.md
	$(PYTHON) benchmarks/league.py

docs: $(READY)  ## write the reference anew and run every code block
	$(PYTHON) scripts/reference.py
	$(PYTHON) -m pytest tests/docs

# MkDocs is not asked for what comes after it.
site site-serve: export NO_MKDOCS_2_WARNING := 1

site: $(READY)  ## the documentation as a site, in site/
	$(VENV)/bin/mkdocs build

site-serve: $(READY)  ## the same at http://127.0.0.1:8000, built anew when a page is saved
	$(VENV)/bin/mkdocs serve

drawings: $(READY)  ## draw docs/pictures/architecture-*.svg anew
	$(PYTHON) scripts/drawings.py

notebooks: $(READY)  ## write tutorial/ anew from docs/tutorial/
	$(PYTHON) scripts/notebooks.py

mirrors: $(READY)  ## write the old import paths anew from tests/compat/paths.toml
	$(PYTHON) scripts/mirrors.py

lock: $(READY)  ## resolve requirements.lock anew
	$(PYTHON) scripts/lock.py

release: $(READY)  ## prepare a release, `make release VERSION=0.11.0`: builds into dist/, tags nothing
	$(PYTHON) scripts/release.py $(VERSION)

clean:  ## remove all that was made
	rm -rf clients/typescript/node_modules clients/typescript/dist
	rm -rf $(VENV) .npm .peer .peer.lock .peers .pythons .ray dist outputs site .checked .coverage .coverage.d
	rm -rf .mypy_cache .pytest_cache .ruff_cache .hypothesis

$(READY): requirements.lock pyproject.toml $(wildcard envs/*/pyproject.toml) scripts/setup
	scripts/setup $(VENV)
	touch $@
