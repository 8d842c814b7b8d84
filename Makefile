# Treadle. `make` alone prints this help. Everything happens in .venv; nothing else is touched.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.ready
PYTEST := $(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder
JOURNALS := .journals

.DEFAULT_GOAL := help
.PHONY: help setup fmt lint types imports test test-fast test-e2e test-compat test-user bench chaos demo \
  cov up down migrate openapi lock containers check

help: ## print this help
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

$(STAMP): requirements/dev.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

setup: $(STAMP) ## make the environment from the locked requirements

fmt: setup ## format the code
	$(BIN)/ruff format . && $(BIN)/ruff check --fix .

lint: setup ## check format and lint
	$(BIN)/ruff format --check . && $(BIN)/ruff check .

types: setup ## check types, strictly
	$(BIN)/mypy

imports: setup ## check which room imports which
	$(BIN)/lint-imports --no-logo

test: setup ## set up and pass every test
	@rm -rf $(JOURNALS) && mkdir $(JOURNALS)
	TREADLE_TRACE_JOURNALS=$(CURDIR)/$(JOURNALS) $(PYTEST)

test-fast: setup ## the pure rooms: no services
	$(BIN)/python -m pytest tests/domain tests/permissions tests/agent

test-e2e: setup ## hosts, Postgres and a scripted model
	$(BIN)/python -m pytest tests/e2e tests/api tests/traces

test-compat: setup ## parse every message with the Claude Agent SDK's own parser
	$(BIN)/python tests/compat/run.py $(WRITTEN)

test-user: setup ## the demo and the platform's tests, as an ordinary user when this is root
	$(BIN)/python tests/platform_user.py -- sh -ec '$(BIN)/python scripts/demo.py; $(PYTEST) -m platform'

bench: setup ## measure against the floor
	$(BIN)/python -m benchmarks.run

MINUTES ?= 2

chaos: setup ## hosts, database, network, clock and disk fail; MINUTES=30, SEED=n
	$(BIN)/python -m tests.chaos --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

demo: setup ## see an agent work: no Docker, no key
	$(BIN)/python scripts/demo.py

cov: setup ## branch coverage of the pure rooms
	$(BIN)/python -m pytest tests/domain tests/permissions tests/agent --cov=app.domain \
	  --cov=app.permissions --cov=app.agent --cov-branch --cov-report=term-missing

up: ## two replicas, Postgres and a proxy in containers
	docker compose up --build --detach

down: ## stop the containers
	docker compose down

migrate: setup ## bring the database's schema up to date
	$(BIN)/treadle migrate

openapi: setup ## write docs/openapi.json
	$(BIN)/python scripts/openapi.py

containers: setup ## lint the Dockerfile, validate the compose file
	$(BIN)/hadolint Dockerfile
	$(BIN)/check-jsonschema --builtin-schema vendor.compose-spec docker-compose.yml

lock: ## lock the requirements anew (needs uv)
	uv pip compile pyproject.toml $(LOCK) -o requirements/run.txt
	uv pip compile pyproject.toml --extra dev $(LOCK) -c requirements/run.txt -o requirements/dev.txt
	echo 'setuptools>=77' | uv pip compile - $(LOCK) -o requirements/build.txt
	echo 'hatchling' | uv pip compile - $(LOCK) -o requirements/compat-build.txt
	echo 'claude-agent-sdk==0.2.189' | uv pip compile - $(LOCK) --emit-build-options \
	  --no-binary claude-agent-sdk -o requirements/compat.txt # keep only the sdist's hash of the SDK

LOCK := --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-header \
  --no-emit-index-url --no-emit-find-links

check: WRITTEN := $(JOURNALS) # by `test`, of the same code
check: lint types imports containers test test-compat demo test-user ## exactly what CI runs
