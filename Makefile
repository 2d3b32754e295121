# Every command of this repository. `make demo` and `make test` set a fresh machine up by themselves.

VENV   := .venv
PYTHON := $(VENV)/bin/python
READY  := $(VENV)/.ready
# One more than there are processors: tests wait a good deal.
RUNNERS := $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
PYTEST := $(PYTHON) -m pytest -n $(RUNNERS) --dist loadfile

TEST_READY := $(READY) engines

# What has a target of its own.
COMMON := not containers and not swarm and not kubernetes and not ray and not trainers and not packaging and not packages and not long
QUICK := not slow and not compat and $(COMMON)
CORE := not upper and $(QUICK)

# What is compiled once is kept: tests start hundreds of interpreters.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help demo engines escapes test test-core test-compat test-packages test-long test-packaging test-pythons test-trainers test-containers test-images test-swarm test-kubernetes test-ray conformance check audit format bench docs drawings notebooks mirrors lock release badges site site-serve clean

demo: $(READY)  ## train a policy on blackjack over 64 concurrent sessions
	$(VENV)/bin/openenv demo

test: $(TEST_READY)  ## every test but those of container engines, and those that take long
	$(PYTEST) -m "$(COMMON)"

test-core: $(TEST_READY)  ## contract, wire, servers and clients: what needs no other package and is quick
	$(PYTEST) -m "$(CORE)"

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

test-compat: $(TEST_READY)  ## with the public package, and programs of npm
	$(PYTEST) -m compat

test-packages: $(TEST_READY)  ## with other projects' packages, each in a virtual environment of its own
	$(PYTEST) -m packages

test-long: $(TEST_READY)  ## what takes minutes, and shows at length what other tests show in short
	$(PYTEST) -m long

test-trainers: $(TEST_READY)  ## with the trainers themselves, each in a virtual environment of its own
	$(PYTHON) -m pytest -m trainers

badges: $(READY)  ## validate our environments in containers; writes their badges and a table
	scripts/containers
	CONTAINERS_CONF=$(CURDIR)/.containers/containers.conf $(PYTHON) scripts/badges.py -- \
		--base localhost/openenv-test-base:latest --network host \
		--ca-file /etc/ssl/certs/ca-certificates.crt

test-packaging: $(READY)  ## wheels, extras, lowest versions, each Python that this machine has
	$(PYTHON) -m pytest --durations 0 -m packaging tests/distributions

PYTHONS ?= 3.10 3.12 3.13 3.14
test-pythons: $(TEST_READY)  ## all quick tests on every other Python that this machine has
	RUNNERS=$(RUNNERS) MARKS="$(QUICK)" scripts/pythons $(PYTHONS)

conformance: $(READY)  ## with the official MCP suite; writes docs/reference/mcp-conformance.md
	$(PYTHON) scripts/conformance.py

check: $(READY)  ## lint, types, generated files, known vulnerabilities
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy src envs tests scripts benchmarks
	$(VENV)/bin/pyright --pythonpath $(PYTHON)
	$(PYTHON) scripts/mirrors.py --check
	$(PYTHON) scripts/reference.py --check
	$(PYTHON) scripts/protocol.py --check
	$(PYTHON) scripts/notebooks.py --check
	$(PYTHON) scripts/drawings.py --check
	$(VENV)/bin/bandit --configfile pyproject.toml --quiet --recursive src envs scripts
	$(PYTHON) scripts/audit.py

engines:  ## programs that tests use for real, by apt: bubblewrap, Stockfish, Chromium
	scripts/engines

escapes: $(READY)  ## every way out of every kind of sandbox; writes docs/reference/sandbox-escapes.md
	$(PYTHON) scripts/escapes.py

audit: $(READY)  ## known vulnerabilities; fails where they cannot be looked up
	$(PYTHON) scripts/audit.py --strict

format: $(READY)  ## mend what can be mended of lint and format
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

bench: $(READY)  ## measure against the public package; writes benchmarks/RESULTS.md
	$(PYTHON) benchmarks/peer.py
	-$(PYTHON) benchmarks/import_cost.py --install
	$(PYTHON) benchmarks/run.py

help:  ## what there is to make
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

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

$(READY): requirements.lock pyproject.toml $(wildcard envs/*/pyproject.toml) scripts/setup
	scripts/setup $(VENV)
	touch $@

clean:  ## remove all that was made
	rm -rf clients/typescript/node_modules clients/typescript/dist
	rm -rf $(VENV) .npm .peer .peers .pythons .ray dist .mypy_cache .pytest_cache .ruff_cache .hypothesis outputs site
