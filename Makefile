# Everything starts from a clean clone with Python 3.11+, make and a package index.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
DEV    := .venv-dev
ARGS   ?=
JOBS   ?= 4
SOURCES := pyproject.toml hatch_build.py $(shell find src -type f -not -name '*.pyc')

# Where this is set, each of the hundreds of processes of the tests would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help run install test test-programs lint bench docs format generate clean

help:
	@echo "make run      install into .venv and start the broker on its defaults (ARGS=... for more)"
	@echo "make install  only make .venv with the package in it (.venv/bin/dragoman)"
	@echo "make test     install what the tests need, lint, and run all tests"
	@echo "make lint     ruff and mypy --strict"
	@echo "make format   let ruff format the sources"
	@echo "make generate  write what comes from the table of operations: methods of clients, docs/operations.md"
	@echo "make docs     build the documentation as a site: open build/site/index.html"
	@echo "make bench    measure against bare servers, such as libzmq's proxy (ARGS=--quick for a short run)"
	@echo "make clean    remove .venv, .venv-dev and caches"
	@echo ".venv holds the product, its hot path compiled where there is a C compiler (DRAGOMAN_PURE=1: nowhere);"
	@echo ".venv-dev runs the sources as they are, for tests and tools"

run: $(VENV)/.installed
	@exec $(BIN)/dragoman serve $(ARGS)

install: $(VENV)/.installed

test: $(DEV)/.installed test-programs lint
	$(DEV)/bin/python -m pytest -n $(JOBS) --dist worksteal $(ARGS)

# Programs that the tests let our listeners talk to, or build such with, and that no package index has.
test-programs:
	@missing=""; \
	command -v nngcat >/dev/null || missing="$$missing nng-utils"; \
	echo '#include <stdio.h>' | gcc -E - >/dev/null 2>&1 || missing="$$missing gcc libc6-dev"; \
	echo '#include <zmq.h>' | gcc -E - >/dev/null 2>&1 || missing="$$missing libzmq3-dev"; \
	[ -e "$$($(PYTHON) -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h" ] || missing="$$missing python3-dev"; \
	command -v curl >/dev/null || missing="$$missing curl"; \
	command -v node >/dev/null || missing="$$missing nodejs"; \
	command -v npm >/dev/null || missing="$$missing npm"; \
	[ -z "$$missing" ] || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
		{ apt-get install -y -qq $$missing >/dev/null 2>&1 || \
		  { apt-get update -qq && apt-get install -y -qq $$missing >/dev/null; }; }; } || \
		{ echo "The tests need nngcat, a C compiler, Python.h, libzmq's headers, curl, and Node with npm. On Debian and Ubuntu: apt-get install$$missing" >&2; exit 2; }

lint: $(DEV)/.installed
	$(DEV)/bin/ruff check .
	$(DEV)/bin/ruff format --check .
	$(DEV)/bin/mypy

format: $(DEV)/.installed
	$(DEV)/bin/ruff check --fix .
	$(DEV)/bin/ruff format .

generate: $(DEV)/.installed
	$(DEV)/bin/python tools/client_methods.py
	$(DEV)/bin/python tools/operations_page.py

docs: $(DEV)/.installed
	NO_MKDOCS_2_WARNING=1 $(DEV)/bin/mkdocs build --quiet --strict
	@echo "Open build/site/index.html"

bench: $(VENV)/.installed $(DEV)/.installed
	$(DEV)/bin/python -m bench $(ARGS)

clean:
	rm -rf $(VENV) $(DEV) build .mypy_cache .ruff_cache .pytest_cache .hypothesis

%/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Dragoman needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) --version 2>&1). Try: make PYTHON=python3.11" >&2; exit 2; }
	@$(PYTHON) -m venv $* || \
		{ echo "Could not make $*. On Debian and Ubuntu: apt-get install python3-venv" >&2; rm -rf $*; exit 2; }

# The product, as users get it: installed again whenever a source has changed.
$(VENV)/.installed: $(SOURCES) | $(VENV)/bin/python
	@echo "Installing into $(VENV) and, where there is a C compiler, compiling the hot path, once: one to three minutes"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check .
	@$(BIN)/dragoman --version
	@touch $@

# For tests and tools: nothing is installed again until pyproject.toml changes, for the sources run as they are.
$(DEV)/.installed: pyproject.toml | $(DEV)/bin/python
	DRAGOMAN_PURE=1 $(DEV)/bin/python -m pip install --quiet --disable-pip-version-check -e '.[test]'
	@touch $@
