# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
STAMP := $(VENV)/.installed

.PHONY: demo test check lint types lock clean
demo: $(STAMP)
	$(RUN) -m bench.demo

test: $(STAMP)
	$(RUN) -m pytest

check: lint types

lint: $(STAMP)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/lint-imports

types: $(STAMP)
	$(VENV)/bin/mypy

$(STAMP): requirements.lock pyproject.toml quorate/pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Quorate needs Python 3.11 or newer: make PYTHON=python3.x")'
	$(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(RUN) -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable ./quorate --editable .
	touch $(STAMP)

# Renews the pins; needs uv (pip install uv).
lock:
	uv pip compile --universal --python-version 3.11 --extra dev --generate-hashes --no-header --no-emit-index-url \
		--no-emit-find-links --no-emit-package quorate-client --upgrade --output-file requirements.lock pyproject.toml

clean:
	rm -rf $(VENV) build *.egg-info
