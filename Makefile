# `make` lists what there is to do. Everything goes through .venv, which scripts/setup makes.

python := .venv/bin/python

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' Makefile | expand -t 24

run:  ## set up this machine, then tune the local stack and prove the gain
	@scripts/setup
	.venv/bin/autotune run targets/local.yaml --yes

setup:  ## what `make run` and `make test` begin with: packages and .venv, no more
	@scripts/setup

test:  ## all tests: those that need nothing, those on real servers, those on lab hosts
	@scripts/setup --dev
	@$(MAKE) --no-print-directory test-hermetic
	$(python) -m pytest -n 2 -m "long or browser"
	$(python) -m pytest -m stack
	@if $(python) -m autotune.lab.prerequisites; then $(MAKE) --no-print-directory test-lab; \
	  else echo "The lab tests did NOT run; above is why." >&2; fi

test-hermetic:  ## the tests that need no server, no network and no root
	@scripts/setup --dev --venv
	@started=$$(date +%s); $(python) -m pytest -n 2 -m "not long and not browser and not stack and not lab" && \
	  echo "Hermetic tests: $$(( $$(date +%s) - started )) s."

test-lab:  ## boots whole hosts on this machine and takes them away (root, systemd-container)
	@scripts/setup --dev --venv
	$(python) -m pytest -m lab

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

clean:  ## remove what the above made here; studies stay
	rm -rf .venv dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: help run setup test test-hermetic test-lab lint bench lock wheel clean
