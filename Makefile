# Every command of this repository. `make demo` and `make test` set a fresh machine up by themselves.

VENV   := .venv
PYTHON := $(VENV)/bin/python
READY  := $(VENV)/.ready
# One more than there are processors: tests wait a good deal.
RUNNERS := $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
PYTEST := $(PYTHON) -m pytest -n $(RUNNERS) --dist loadfile

TEST_READY := $(READY) engines

# What is compiled once is kept: tests start hundreds of interpreters.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo engines escapes test test-core test-compat test-trainers test-containers test-images test-swarm test-kubernetes test-ray conformance check audit format bench docs notebooks mirrors lock badges clean

demo: $(READY)  ## train a policy on blackjack over 64 concurrent sessions
	$(VENV)/bin/openenv demo

test: $(TEST_READY)  ## every test but those of container engines
	$(PYTEST) -m "not containers and not swarm and not kubernetes and not ray and not trainers"

test-core: $(TEST_READY)  ## what needs no other package and is quick
	$(PYTEST) -m "not slow and not compat and not containers and not swarm and not kubernetes and not ray and not trainers"

test-containers: $(READY)  ## on a real engine: Podman, which is installed by apt
	scripts/containers
	$(PYTHON) -m pytest -m containers tests/providers/containers tests/sandbox/containers \
		tests/validation/containers

test-images: $(READY)  ## build images of environments by Podman, and run them
	scripts/containers
	$(PYTHON) -m pytest -m containers tests/images/containers

test-kubernetes: $(READY)  ## on a real API server, which is built once, with pods that Podman plays
	scripts/kubernetes
	$(PYTHON) -m pytest -m kubernetes tests/providers/kubernetes

test-swarm: $(READY)  ## on Docker's engine, with a swarm of this machine
	scripts/containers
	scripts/dockerd $(PYTHON) -m pytest -m "containers or swarm" tests/providers/containers tests/providers/swarm

test-ray: $(READY)  ## on a cluster of Ray with three nodes, on this machine
	scripts/ray

test-compat: $(TEST_READY)  ## with other packages, in virtual environments of their own
	$(PYTEST) -m compat

test-trainers: $(TEST_READY)  ## with the trainers themselves, each in a virtual environment of its own
	$(PYTHON) -m pytest -m trainers

badges: $(READY)  ## validate our environments in containers; writes their badges and a table
	scripts/containers
	CONTAINERS_CONF=$(CURDIR)/.containers/containers.conf $(PYTHON) scripts/badges.py -- \
		--base localhost/openenv-test-base:latest --network host \
		--ca-file /etc/ssl/certs/ca-certificates.crt

conformance: $(READY)  ## with the official MCP suite; writes docs/reference/mcp-conformance.md
	$(PYTHON) scripts/conformance.py

check: $(READY)  ## lint, types, generated files, known vulnerabilities
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy src envs tests scripts benchmarks
	$(VENV)/bin/pyright --pythonpath $(PYTHON)
	$(PYTHON) scripts/mirrors.py --check
	$(PYTHON) scripts/reference.py --check
	$(PYTHON) scripts/notebooks.py --check
	$(VENV)/bin/bandit --configfile pyproject.toml --quiet --recursive src envs scripts
	$(PYTHON) scripts/audit.py

engines:  ## programs that tests use for real, by apt: bubblewrap, Stockfish, Chromium
	scripts/engines

escapes: $(READY)  ## every way out of every kind of sandbox; writes docs/reference/sandbox-escapes.md
	$(PYTHON) scripts/escapes.py

audit: $(READY)  ## known vulnerabilities; fails where they cannot be looked up
	$(PYTHON) scripts/audit.py --strict

format: $(READY)
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

bench: $(READY)  ## measure against the public package; writes benchmarks/RESULTS.md
	$(PYTHON) benchmarks/peer.py
	-$(PYTHON) benchmarks/import_cost.py --install
	$(PYTHON) benchmarks/run.py

docs: $(READY)  ## write the reference anew and run every code block
	$(PYTHON) scripts/reference.py
	$(PYTHON) -m pytest tests/docs

notebooks: $(READY)  ## write tutorial/ anew from docs/tutorial/
	$(PYTHON) scripts/notebooks.py

mirrors: $(READY)  ## write the old import paths anew from tests/compat/paths.toml
	$(PYTHON) scripts/mirrors.py

lock: $(READY)  ## resolve requirements.lock anew
	$(PYTHON) scripts/lock.py

$(READY): requirements.lock pyproject.toml $(wildcard envs/*/pyproject.toml) scripts/setup
	scripts/setup $(VENV)
	touch $@

clean:
	rm -rf $(VENV) .npm .peer .peers .ray .mypy_cache .pytest_cache .ruff_cache .hypothesis outputs
