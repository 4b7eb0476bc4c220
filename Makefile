# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
# What the tests need is brought side by side: the compiler has one processor, packages come meanwhile, for which it is waited.
MAKEFLAGS += --jobs=3
# Hundreds of processes are started here, and each would compile a hundred modules where Python keeps no bytecode. To do without
# all the same: make PYTHONDONTWRITEBYTECODE=1.
export PYTHONDONTWRITEBYTECODE :=
VENV := .venv
RUN := $(VENV)/bin/python
RUNS := $(VENV)/.runs
STAMP := $(VENV)/.installed
SPARK := $(VENV)/.spark
COMPILED := $(VENV)/.compiled
PEERS := build/peers/.installed
QUICK_JAVA := $(VENV)/spark.jsa
# A lock file names all that is wanted, so nothing is resolved again, and of what is brought a tenth is compiled, when it is used.
# Pip itself is pinned: that of 2023, which Python 3.11 brings, takes twice the time, most of it for files nobody wants.
PIP := $(RUN) -m pip --quiet --disable-pip-version-check
INSTALL := install --no-compile --no-deps --require-hashes -r
OURS := install --no-deps --no-build-isolation

# Of the demo, at most.
LINES := 60000

SOURCES := quorate_compiled.py $(shell find actors net quorate storage -name '*.py')
# Side by side: as many as there are cores, and two that wait for clocks, disks and processes meanwhile.
BESIDE := --numprocesses 4
SECOND_LOOK := $(if $(shell command -v cc || command -v gcc),test-interpreted)
QUICK := tests/actors tests/net tests/storage tests/simulation/test_planted.py tests/simulation/test_planted_jobs.py tests/simulation/test_stale_reads.py

.PHONY: demo demo-data test test-interpreted outside peers compiled interpreted wheel check lint types lock clean
# With the code that is there: interpreted, where nobody has said `make compiled`.
demo: $(RUNS)
	$(RUN) -m bench.demo --lines $(LINES)

# The demo, and its log archived and reported on. Brings Spark, as `make test` does.
demo-data: $(SPARK) $(COMPILED)
	$(RUN) -m bench.demo_data --lines $(LINES)

# All tests, with the code that this machine runs. CI says MEANWHILE=outside, and has those that need more of the machine.
test: $(COMPILED) $(SPARK) $(PEERS) $(QUICK_JAVA) $(SECOND_LOOK) $(MEANWHILE)
	$(RUN) -m pytest $(BESIDE)
	$(if $(SECOND_LOOK),,if $(RUN) -m quorate_compiled --is-compiled; then $(MAKE) test-interpreted; fi)

# The quick ones and those that plant bugs, interpreted; `test` has it where code is compiled, and while the compiler works.
test-interpreted: $(STAMP)
	SECOND_LOOK=1 QUORATE_COMPILE=0 $(RUN) -m pytest --numprocesses 2 $(QUICK)

# Compiles in place, for those who work on it; fails where that can't be done. `interpreted` takes it away again.
compiled: $(STAMP)
	QUORATE_COMPILE=1 $(RUN) setup.py --quiet build_ext --inplace
	touch $(COMPILED)
	QUORATE_COMPILE=1 $(RUN) -m quorate_compiled

interpreted:
	find . -name '*.so' -not -path './$(VENV)/*' -not -path './build/*' -delete
	rm -f $(COMPILED)

# One wheel of each distribution in build/wheels, for this Python: make wheel PYTHON=python3.13, in a clean checkout.
wheel:
	QUORATE_COMPILE=1 $(PYTHON) -m pip wheel --quiet --no-deps --wheel-dir build/wheels ./quorate .

check: lint types

lint: $(STAMP)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/lint-imports

types: $(SPARK)
	$(VENV)/bin/mypy

# What the server takes to run, and what it takes to be worked on.
$(RUNS): requirements-run.lock requirements-pip.lock pyproject.toml quorate/pyproject.toml setup.py
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Quorate needs Python 3.11 or newer: make PYTHON=python3.x")'
	$(PYTHON) -m venv $(VENV)
	$(PIP) $(INSTALL) requirements-pip.lock
	$(PIP) $(INSTALL) requirements-run.lock
	QUORATE_COMPILE=0 $(PIP) $(OURS) --editable ./quorate --editable .
	touch $(RUNS)

$(STAMP): $(RUNS) requirements.lock
	$(PIP) $(INSTALL) requirements.lock
	touch $(STAMP)

# Compiled code in place, where there is a C compiler that finds Python's headers; interpreted elsewhere, and it says so.
$(COMPILED): $(STAMP) $(SOURCES)
	$(RUN) setup.py --quiet build_ext --inplace
	$(RUN) -m quorate_compiled
	touch $(COMPILED)

# Spark, and a Java for it where there is none that it runs on.
$(SPARK): $(STAMP) requirements-spark.lock requirements-jdk.lock
	$(PIP) $(INSTALL) requirements-spark.lock --no-build-isolation
	$(RUN) -m data.java || $(PIP) $(INSTALL) requirements-jdk.lock
	touch $(SPARK)

# With it the tests' Javas start in half of the time; they do without where it can't be made. Interpreted, since code may
# be being compiled meanwhile.
$(QUICK_JAVA): | $(SPARK)
	-QUORATE_COMPILE=0 $(RUN) -m tests.quick_java

# Task queues and frameworks that our modules for them are tested with, in an environment of their own, and those of their
# own tests that ours must pass, from their source distributions.
peers: $(PEERS)
PEERS_PIP := $(PIP) --python build/peers/venv/bin/python
$(PEERS): requirements-peers.lock peers-src.lock quorate/pyproject.toml | $(STAMP)
	rm -rf build/peers && mkdir -p build/peers/src
	$(PYTHON) -m venv --without-pip build/peers/venv
	$(PEERS_PIP) $(INSTALL) requirements-peers.lock
	$(PEERS_PIP) $(OURS) --editable ./quorate
	$(PIP) download --no-deps --no-build-isolation --no-binary :all: --require-hashes -r peers-src.lock -d build/peers
	for packed in build/peers/*.tar.gz; do tar xz -C build/peers/src -f $$packed; done
	touch $(PEERS)

outside:
	.ci/outside >/dev/null 2>&1 || true

# Renews the pins; needs uv (pip install uv). Those of Spark and Java hold to the first.
COMPILE := uv pip compile --universal --python-version 3.11 --generate-hashes --no-header --no-emit-index-url \
	--no-emit-find-links --no-emit-package quorate-client --upgrade
lock:
	$(COMPILE) --extra dev --output-file requirements.lock pyproject.toml
	$(COMPILE) --extra build --constraint requirements.lock --output-file requirements-run.lock pyproject.toml
	$(COMPILE) --extra spark --constraint requirements.lock --output-file requirements-spark.lock pyproject.toml
	$(COMPILE) --extra jdk --constraint requirements.lock --output-file requirements-jdk.lock pyproject.toml
	$(COMPILE) --output-file requirements-peers.lock peers.in
	echo pip | $(COMPILE) --output-file requirements-pip.lock -

clean:
	rm -rf $(VENV) build *.egg-info
