# Needs python3 (3.11 to 3.13) and make. Everything else is put into .uv and .venv, inside this folder.
.PHONY: demo test frozen fuzz kills test-cluster test-flower lint bench bench-peers lock clean help
.DEFAULT_GOAL := help
SHELL := bash
.SHELLFLAGS := -euo pipefail -c

PYTHON3 ?= python3
UV := .uv/bin/uv
BIN := .venv/bin
READY := .venv/.synced
FLOWER := .uv/flower
DEMO := runs/demo
PEERS := pfl fedjax flower

help:  ## list the targets
	@sed -nE 's/^([a-z-]+):.*## (.*)/make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

demo: $(READY)  ## train, record and audit on generated data and handwritten digits: no download, no account, minutes
	@rm -rf $(DEMO)
	$(BIN)/python train.py fit --config configs/train/fncf_synthetic.yaml --trainer.default_root_dir $(DEMO)/clicks
	$(BIN)/python attack.py audit --deltas $(DEMO)/clicks/deltas --out $(DEMO)/clicks
	$(BIN)/python train.py fit --config configs/train/decaf_digits.yaml --trainer.default_root_dir $(DEMO)/classes
	$(BIN)/python attack.py audit --deltas $(DEMO)/classes/deltas --out $(DEMO)/classes
	@echo "what leaked of clicks: $(DEMO)/clicks/report.html, of class shares: $(DEMO)/classes/report.html"

test: lint  ## lint, types, import walls, tests (one thread: more only wait for each other on tensors this small)
	OMP_NUM_THREADS=1 $(BIN)/pytest

frozen: $(READY)  ## compare the numbers of every table and training, made tiny, with the frozen ones
	OMP_NUM_THREADS=1 $(BIN)/python -W ignore -m tests.regression

MINUTES ?= 30
fuzz: $(READY)  ## damaged and hostile files for MINUTES (30) minutes: a table of how they ended, failures in runs/fuzz/
	OMP_NUM_THREADS=1 $(BIN)/python -W ignore -m tests.fuzz --minutes $(MINUTES)

KILLS ?= 200
kills: $(READY)  ## SIGKILL at KILLS random instants of trainings, tables and conversions; nothing journalled may be lost
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.fuzz.kills --kills $(KILLS)

test-cluster: $(READY)  ## the batch files on a SLURM of one node of this machine, installed as root on Debian
	bash tests/cluster/install.sh
	OMP_NUM_THREADS=1 $(BIN)/pytest -m cluster tests/cluster

# Flower holds back packages that we need newer, so it has an environment of its own.
test-flower: $(FLOWER)/.synced  ## record real Flower trainings and compare them with ours; sends no telemetry
	OMP_NUM_THREADS=1 FLWR_TELEMETRY_ENABLED=0 $(FLOWER)/bin/pytest tests/flower

lint: $(READY)  ## lint, types, import walls
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy .
	$(BIN)/lint-imports

bench: $(READY)  ## measure the engine, the attacks and the recorder; writes bench/out/
	$(BIN)/python -m bench

bench-peers: $(READY) $(PEERS:%=.peers/%/.synced)  ## measure pfl-research, fedjax and Flower beside ours; writes bench/out/
	$(BIN)/python -m bench.peers

COMPILE = $(UV) pip compile --universal --python-version 3.11 --prerelease disallow \
	--generate-hashes --no-header --no-annotate --no-emit-index-url --quiet
OUR_TORCH = sed -nE 's/^(torch==[0-9.]+).*/\1/p' requirements.lock
lock: $(UV)  ## resolve all locks anew (hash-pinned, naming no index, no pre-releases)
	$(COMPILE) pyproject.toml --group dev -o requirements.lock
	$(COMPILE) pyproject.toml --group dev --extra flower -o requirements-flower.lock
	for peer in $(PEERS); do $(COMPILE) bench/peers/$$peer.in --constraint <($(OUR_TORCH)) -o bench/peers/$$peer.lock; done

clean:  ## remove the environment, caches and benchmark output; runs/ stays
	rm -rf .uv .venv .peers .mypy_cache .ruff_cache .pytest_cache .import_linter_cache bench/out
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(UV):
	@$(PYTHON3) -c 'import sys; v = sys.version_info[:2]; (3, 11) <= v <= (3, 13) or sys.exit(\
	f"expected Python 3.11 to 3.13, found {v[0]}.{v[1]}. Say which to use: make PYTHON3=python3.12")'
	$(PYTHON3) -m venv .uv
	.uv/bin/pip install --quiet --disable-pip-version-check 'uv>=0.9,<1'

# The stamp is younger than the lock once the environment holds exactly what the lock names. Compiled at once: where
# python may write no bytecode, every start would compile anew for twenty seconds.
$(READY): requirements.lock | $(UV)
	test -x $(BIN)/python || $(UV) venv --quiet --python .uv/bin/python .venv
	$(UV) pip sync --quiet --require-hashes --compile-bytecode --python $(BIN)/python requirements.lock
	@touch $(READY)

$(FLOWER)/.synced: requirements-flower.lock | $(UV)
	test -x $(FLOWER)/bin/python || $(UV) venv --quiet --python .uv/bin/python $(FLOWER)
	$(UV) pip sync --quiet --require-hashes --compile-bytecode --python $(FLOWER)/bin/python requirements-flower.lock
	@touch $@

# Each peer has an environment of its own: their needs contradict each other.
.peers/%/.synced: bench/peers/%.lock | $(UV)
	test -x .peers/$*/bin/python || $(UV) venv --quiet --python .uv/bin/python .peers/$*
	$(UV) pip sync --quiet --require-hashes --python .peers/$*/bin/python bench/peers/$*.lock
	@touch $@
