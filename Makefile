# `make` lists the targets. All of them use .venv, which scripts/setup creates.

python := .venv/bin/python

help:  ## show this list
	@sed -n 's/^\([a-z0-9-]*\):.*## /  make \1\t/p' Makefile | expand -t 24

run:  ## set up this machine, then tune the local stack and prove the gain
	@scripts/setup
	.venv/bin/autotune run targets/local.yaml --yes

setup:  ## install packages and create .venv, as `make run` and `make test` do first
	@scripts/setup

test:  ## run the same tests as CI, which do not depend on the speed of the machine
	@scripts/setup --dev
	@scripts/test all

test-hermetic:  ## run the tests that need no server, network or root
	@scripts/setup --dev --venv
	@scripts/test hermetic

test-generators:  ## build oha and k6 from source once (minutes), and test them
	@scripts/setup --dev --generators
	@scripts/test generators

test-containers:  ## run tests with Compose projects on a real Podman (as root; installs about 100 MB)
	@scripts/setup --dev --containers
	@scripts/test containers

test-debian13:  ## run hermetic tests and a four-minute study in a Debian 13 tree (as root)
	@scripts/setup --venv --debian13
	@scripts/test-debian13

test-quiet:  ## run tests that measure real servers, on an otherwise idle machine
	@scripts/setup --dev
	@scripts/test quiet

test-soak:  ## test kills at random moments and damaged inputs: AUTOTUNE_SEED=1 AUTOTUNE_KILLS=30 make test-soak
	@scripts/setup --dev
	@scripts/test soak

lint:  ## check formatting, lint rules and types
	@scripts/setup --dev --venv
	$(python) -m ruff format --check
	$(python) -m ruff check
	$(python) -m mypy

bench:  ## run the benchmarks of measuring and searching
	@scripts/setup --dev --venv
	$(python) -m bench

lock:  ## write new lock files from pyproject.toml
	@scripts/setup --dev --venv
	PATH=$(CURDIR)/.venv/bin:$$PATH scripts/lock

wheel:  ## build dist/autotune-*.whl
	@scripts/setup --venv
	$(python) -m hatchling build -t wheel

deb:  ## build dist/autotune_*.deb from the wheel, for the Python of this distribution
	@scripts/setup --dev --venv
	@scripts/deb

docs:  ## build the documentation as a site in build/site; installs MkDocs in build/docs
	python3 -m venv build/docs
	build/docs/bin/python -m pip install --quiet --require-hashes -r docs/requirements.lock
	build/docs/bin/python -m mkdocs build --strict --quiet

clean:  ## remove all generated files except studies
	rm -rf .venv dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: help run setup test test-hermetic test-generators test-containers test-debian13 test-quiet test-soak lint bench lock wheel deb docs clean
