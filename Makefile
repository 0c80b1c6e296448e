# One entry point for people and for CI. Needs Python 3.11 or newer and make; everything else goes into .venv.

SHELL := /bin/sh
.DEFAULT_GOAL := help

VENV := .venv
PY := $(VENV)/bin/python
STAMPS := $(VENV)/.stamps

# pip options that would send the installation elsewhere than into .venv; index, proxy and certificate options stay.
unexport PIP_USER PIP_TARGET PIP_PREFIX PIP_ROOT PIP_NO_DEPS PIP_DRY_RUN PIP_REQUIRE_HASHES PIP_NO_BUILD_ISOLATION
unexport PYTHONHOME PYTHONPATH PYTHONSTARTUP VIRTUAL_ENV
# Without compiled files each of the hundreds of processes that the tests start would compile the package anew.
unexport PYTHONDONTWRITEBYTECODE

# An interpreter of one's own choice: make PYTHON=/path/to/python3.12 run
CANDIDATES := $(if $(PYTHON),$(PYTHON),python3.13 python3.12 python3.11 python3 python)
PIP := $(PY) -m pip --disable-pip-version-check install -qq

# A copied or moved folder must not run the code of the one that its .venv points to.
ifneq ($(wildcard $(STAMPS)/venv),)
ifneq ($(shell cat $(STAMPS)/venv),$(CURDIR))
$(shell rm -rf $(VENV))
endif
endif

# As many workers as tests/conftest.py says; ARGS="-n 0" runs the tests in one process, as a debugger needs it.
PYTEST := $(PY) -m pytest -n auto --maxprocesses 8 --dist worksteal

.PHONY: help run test test-long test-web lint format bench docs site sbom audit coverage clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' Makefile

run: $(STAMPS)/run ## a first run: a graph, streamed tokens, an approval, the thread's checkpoints
	@$(PY) examples/first_run.py

test: $(STAMPS)/test ## every test, the campaigns (kills, random programs, fuzz) in small numbers
	@$(PYTEST) $(ARGS)

test-long: $(STAMPS)/test ## the campaigns in large numbers: thousands of killed processes and random programs; hours
	@GRAPHFLOW_CAMPAIGN=long $(PYTEST) -m campaign $(ARGS)

test-web: $(STAMPS)/web ## what needs Node, a browser or other SDKs; a tool that is absent fails
	@CI=1 $(PYTEST) -m web $(ARGS)

lint: $(STAMPS)/lint ## style, types, layers, spelling
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m mypy
	@$(VENV)/bin/lint-imports --no-cache
	@$(PY) -m codespell_lib

format: $(STAMPS)/lint ## fix what the linter can fix
	@$(PY) -m ruff check --fix --quiet . || true
	@$(PY) -m ruff format .

bench: $(STAMPS)/test ## the figures of docs/internals/performance.md (ARGS="--only NAME" for one)
	@$(PY) benchmarks/run.py $(ARGS)

docs: $(STAMPS)/run ## write the generated pages and pictures of docs/
	@$(PY) -m docs.generate

site: $(STAMPS)/site ## build the documentation site into site/, offline; a broken link fails
	@NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict --quiet
	@echo "site/index.html"

sbom: $(STAMPS)/supply-chain ## sbom.cdx.json: what graphflow is installed with, in CycloneDX
	@$(VENV)/supply-chain/bin/cyclonedx-py environment --pyproject pyproject.toml --mc-type application \
	  --output-reproducible --output-format JSON --output-file sbom.cdx.json $(VENV)/released/bin/python
	@echo "sbom.cdx.json"

audit: $(STAMPS)/supply-chain ## known vulnerabilities of what graphflow is installed with; 2: no data can be reached
	@$(VENV)/supply-chain/bin/python supply_chain/audit.py $(VENV)/released/lib/python3*/site-packages

coverage: $(STAMPS)/test ## a map of what no test reaches
	@$(PY) -m coverage run -m pytest $(ARGS)
	@$(PY) -m coverage report

clean: ## remove .venv and the caches; threads in checkpoints/ stay
	@rm -rf $(VENV) .bench .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis .coverage htmlcov dist site sbom.cdx.json

$(STAMPS)/venv:
	@for python in $(CANDIDATES); do \
	  if "$$python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then \
	    echo "Making .venv with $$("$$python" --version) …"; \
	    "$$python" -m venv --clear $(VENV) && mkdir -p $(STAMPS) && printf %s "$(CURDIR)" > $@ && exit 0; \
	    exit 1; \
	  fi; \
	done; \
	echo "graphflow needs Python 3.11 or newer with the venv module; tried: $(CANDIDATES)." >&2; \
	echo "Install one (on Debian: python3 and python3-venv), or name it: make PYTHON=/path/to/python3 $(MAKECMDGOALS)" >&2; \
	exit 1

$(STAMPS)/run: $(STAMPS)/venv pyproject.toml
	@echo "Installing graphflow into .venv (once) …"
	@$(PIP) --editable .
	@touch $@

$(STAMPS)/test: $(STAMPS)/venv pyproject.toml
	@echo "Installing what the tests need into .venv (once) …"
	@$(PIP) --editable '.[test]'
	@touch $(STAMPS)/run $@

# Apart from the tests' own packages: a client that somebody generates has nothing of graphflow to lean on.
$(STAMPS)/web: $(STAMPS)/test tests/web/package-lock.json tests/web/requirements.txt
	@echo "Installing the generators of clients and the browser's driver into .venv/web (once) …"
	@$(PY) -m venv --clear $(VENV)/web
	@$(VENV)/web/bin/python -m pip --disable-pip-version-check install -qq -r tests/web/requirements.txt
	@cp tests/web/package.json tests/web/package-lock.json $(VENV)/web
	@cd $(VENV)/web && npm ci --no-audit --no-fund --ignore-scripts --loglevel=error
	@touch $@

# What is listed and audited is graphflow with its extras and nothing else; the tools that do it have a place of their own.
$(STAMPS)/supply-chain: $(STAMPS)/venv pyproject.toml supply_chain/requirements.txt
	@echo "Installing graphflow alone, and the tools that look at it, into .venv (once) …"
	@$(PY) -m venv --clear $(VENV)/released
	@$(VENV)/released/bin/python -m pip --disable-pip-version-check install -qq '.[postgres,providers,encryption,mcp,search]'
	@$(VENV)/released/bin/python -m pip --disable-pip-version-check uninstall -qq --yes pip setuptools
	@$(PY) -m venv --clear $(VENV)/supply-chain
	@$(VENV)/supply-chain/bin/python -m pip --disable-pip-version-check install -qq -r supply_chain/requirements.txt
	@touch $@

$(STAMPS)/lint: $(STAMPS)/test
	@echo "Installing the linters into .venv (once) …"
	@$(PIP) --editable '.[test,lint]'
	@touch $@

$(STAMPS)/site: $(STAMPS)/run
	@echo "Installing the site generator into .venv (once) …"
	@$(PIP) --editable '.[docs]'
	@touch $@
