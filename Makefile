# Everything starts from a clean clone with Python 3.11+, make and a package index.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
ARGS   ?=

.PHONY: help run install test test-programs lint bench format clean

help:
	@echo "make run      install into .venv and start the broker on its defaults (ARGS=... for more)"
	@echo "make install  only make .venv with the package in it (.venv/bin/dragoman)"
	@echo "make test     install what the tests need, lint, and run all tests"
	@echo "make lint     ruff and mypy --strict"
	@echo "make format   let ruff format the sources"
	@echo "make bench    measure against bare servers, such as libzmq's proxy (ARGS=--quick for a short run)"
	@echo "make clean    remove .venv and caches"

run: $(VENV)/.installed
	@exec $(BIN)/dragoman serve $(ARGS)

install: $(VENV)/.installed

test: $(VENV)/.installed-test test-programs lint
	$(BIN)/python -m pytest $(ARGS)

# Programs that the tests let our listeners talk to, or build such with, and that no package index has.
test-programs:
	@missing=""; \
	command -v nngcat >/dev/null || missing="$$missing nng-utils"; \
	echo '#include <stdio.h>' | gcc -E - >/dev/null 2>&1 || missing="$$missing gcc libc6-dev"; \
	command -v node >/dev/null || missing="$$missing nodejs"; \
	command -v npm >/dev/null || missing="$$missing npm"; \
	[ -z "$$missing" ] || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
		{ apt-get install -y -qq $$missing >/dev/null 2>&1 || \
		  { apt-get update -qq && apt-get install -y -qq $$missing >/dev/null; }; }; } || \
		{ echo "The tests need nngcat, a C compiler, and Node with npm. On Debian and Ubuntu: apt-get install$$missing" >&2; exit 2; }

lint: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.installed-test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.installed-test
	$(BIN)/python -m bench $(ARGS)

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis

# One stamp a set of requirements: nothing is installed again until pyproject.toml changes.
$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Dragoman needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) --version 2>&1). Try: make PYTHON=python3.11" >&2; exit 2; }
	@$(PYTHON) -m venv $(VENV) || \
		{ echo "Could not make $(VENV). On Debian and Ubuntu: apt-get install python3-venv" >&2; rm -rf $(VENV); exit 2; }

$(VENV)/.installed: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	@touch $@

$(VENV)/.installed-test: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[test]'
	@touch $@ $(VENV)/.installed
