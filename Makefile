# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
STAMP := $(VENV)/.installed
SPARK := $(VENV)/.spark
PIP := $(RUN) -m pip install --quiet --disable-pip-version-check

.PHONY: demo demo-data test check lint types lock clean
demo: $(STAMP)
	$(RUN) -m bench.demo

# The demo, and its log archived and reported on. Brings Spark, as `make test` does.
demo-data: $(SPARK)
	$(RUN) -m bench.demo_data

test: $(SPARK)
	$(RUN) -m pytest

check: lint types

lint: $(STAMP)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/lint-imports

types: $(SPARK)
	$(VENV)/bin/mypy

$(STAMP): requirements.lock pyproject.toml quorate/pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Quorate needs Python 3.11 or newer: make PYTHON=python3.x")'
	$(PYTHON) -m venv $(VENV)
	$(PIP) --require-hashes -r requirements.lock
	$(PIP) --no-deps --no-build-isolation --editable ./quorate --editable .
	touch $(STAMP)

# Spark, and a Java for it where there is none that it runs on.
$(SPARK): $(STAMP) requirements-spark.lock requirements-jdk.lock
	$(PIP) --require-hashes --no-build-isolation -r requirements-spark.lock
	$(RUN) -m data.java || $(PIP) --require-hashes -r requirements-jdk.lock
	touch $(SPARK)

# Renews the pins; needs uv (pip install uv). Those of Spark and Java hold to the first.
COMPILE := uv pip compile --universal --python-version 3.11 --generate-hashes --no-header --no-emit-index-url \
	--no-emit-find-links --no-emit-package quorate-client --upgrade
lock:
	$(COMPILE) --extra dev --output-file requirements.lock pyproject.toml
	$(COMPILE) --extra spark --constraint requirements.lock --output-file requirements-spark.lock pyproject.toml
	$(COMPILE) --extra jdk --constraint requirements.lock --output-file requirements-jdk.lock pyproject.toml

clean:
	rm -rf $(VENV) build *.egg-info
