# `make` lists what there is to do. Everything goes through .venv, which scripts/setup makes.

python := .venv/bin/python

help:  ## this list
	@sed -n 's/^\([a-z0-9-]*\):.*## /  make \1\t/p' Makefile | expand -t 24

run:  ## set up this machine, then tune the local stack and prove the gain
	@scripts/setup
	.venv/bin/autotune run targets/local.yaml --yes

setup:  ## what `make run` and `make test` begin with: packages and .venv, no more
	@scripts/setup

test:  ## what CI runs: all tests that hold on any machine, however slow and however disturbed
	@scripts/setup --dev
	@scripts/test hermetic together

test-hermetic:  ## of these, the tests that need no server, no network and no root
	@scripts/setup --dev --venv
	@scripts/test hermetic

test-generators:  ## load generators of no distribution, built from source once (minutes) and tried
	@scripts/setup --dev --generators
	@scripts/test generators

test-containers:  ## Compose projects of a real Podman (as root; installs about 100 MB)
	@scripts/setup --dev --containers
	@scripts/test containers

test-debian13:  ## hermetic tests and a study of four minutes in a Debian 13 tree (as root)
	@scripts/setup --venv --debian13
	@scripts/test-debian13

test-quiet:  ## what a quiet machine measures with real servers; nothing else may run meanwhile
	@scripts/setup --dev
	@scripts/test quiet

test-soak:  ## kills at random moments, damaged inputs: AUTOTUNE_SEED=1 AUTOTUNE_KILLS=30 make test-soak
	@scripts/setup --dev
	@scripts/test soak

lint:  ## formatting, lint rules and types
	@scripts/setup --dev --venv
	$(python) -m ruff format --check
	$(python) -m ruff check
	$(python) -m mypy

bench:  ## the benchmarks of measuring and searching, as tables
	@scripts/setup --dev --venv
	$(python) -m bench

lock:  ## new lock files from pyproject.toml
	@scripts/setup --dev --venv
	PATH=$(CURDIR)/.venv/bin:$$PATH scripts/lock

wheel:  ## dist/autotune-*.whl
	@scripts/setup --venv
	$(python) -m hatchling build -t wheel

deb:  ## dist/autotune_*.deb of the wheel, for the Python of this distribution
	@scripts/setup --dev --venv
	@scripts/deb

docs:  ## the documentation as a site, build/site; installs MkDocs in build/docs
	python3 -m venv build/docs
	build/docs/bin/python -m pip install --quiet --require-hashes -r docs/requirements.lock
	build/docs/bin/python -m mkdocs build --strict --quiet

clean:  ## remove what the above made here; studies stay
	rm -rf .venv dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: help run setup test test-hermetic test-generators test-containers test-debian13 test-quiet test-soak lint bench lock wheel deb docs clean
