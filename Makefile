# Everything starts from a clean clone with Python 3.11+, make and a package index.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
DEV    := .venv-dev
LOWEST := .venv-lowest
FUZZ   := .venv-fuzz
ARGS   ?=
JOBS   ?= 4
SECONDS ?= 60
TARGET ?= --all
SOURCES := pyproject.toml hatch_build.py $(shell find src -type f -not -name '*.pyc')
PIP    := python -m pip install --quiet --disable-pip-version-check
# One module of the hot path. The hot path is compiled as a whole, so this file tells a compiled install from the other kind.
COMPILED := $(wildcard $(VENV)/lib/python*/site-packages/dragoman/core/broker.*.so)

# Where this is set, each of the hundreds of processes of the tests would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo run install compile test test-lowest test-programs pytest compiled-product rewritten-tests lint fuzz bench chaos docs format generate clean

help:
	@echo "make demo     run callers and workers of every dialect for about a minute; installs into .venv first, interpreted"
	@echo "make run      start the broker on its defaults (ARGS=... for more); installs into .venv first, interpreted"
	@echo "make install  install into .venv, the hot path compiled where there is a C compiler (.venv/bin/dragoman)"
	@echo "make test     install what the tests need, lint, and run all tests"
	@echo "make test-lowest  run the unit and interop tests with the oldest releases of dependencies that pyproject.toml allows"
	@echo "make lint     ruff and mypy --strict"
	@echo "make format   let ruff format the sources"
	@echo "make generate  write what comes from the code: methods of clients, docs/operations.md, pages in docs/reference"
	@echo "make docs     build the documentation as a site: open build/site/index.html"
	@echo "make fuzz     search for inputs that break a reader of bytes: all targets, 60 s each (SECONDS=10 TARGET=zmtp: one)"
	@echo "make bench    measure against bare servers, such as libzmq's proxy (ARGS=--quick for a short run)"
	@echo "make chaos    kill, freeze and cut off brokers and NATS servers under 20,000 jobs: 10 minutes (ARGS=--help for options)"
	@echo "make clean    remove .venv, .venv-dev, .venv-lowest, .venv-fuzz, .build and caches"
	@echo ".venv holds the product; once it is compiled it stays compiled (DRAGOMAN_PURE=1 make install: interpreted);"
	@echo ".venv-dev runs the sources as they are, for tests and tools; .venv-fuzz does so for make fuzz"

demo: $(VENV)/.installed
	@exec $(BIN)/dragoman demo $(ARGS)

run: $(VENV)/.installed
	@exec $(BIN)/dragoman serve $(ARGS)

# What is compiled and up to date stays; everything else is installed now, compiled where that is possible.
install: $(if $(and $(COMPILED),$(if $(filter-out 0,$(DRAGOMAN_PURE)),,1)),$(VENV)/.installed,compile)

compile: | $(VENV)/bin/python
	@echo "Installing into $(VENV) and, where there is a C compiler, compiling the hot path: one to three minutes if two cores are free"
	$(BIN)/$(PIP) '.[all]'
	@$(BIN)/dragoman --version
	@touch $(VENV)/.installed

test: $(DEV)/.installed test-programs
	@$(MAKE) --no-print-directory -j3 pytest $(if $(ARGS),,compiled-product)

test-lowest: $(LOWEST)/.installed test-programs
	$(LOWEST)/bin/python -m pytest -n $(JOBS) --dist worksteal tests/unit tests/interop $(ARGS)

# The product is compiled beside lint and the tests: most tests do not need it, and those of tests/compiled wait for it.
# Assertions are rewritten before the tests start, because each of their processes would rewrite all of them. With ARGS
# the tests do both themselves, if they need to.
pytest: lint $(if $(ARGS),,rewritten-tests)
	$(DEV)/bin/python -m pytest -n $(JOBS) --dist worksteal $(ARGS)

compiled-product: $(DEV)/.installed
	@echo "Compiling the product for tests/compiled into .build, if a source has changed: about a minute if two cores are free"
	@$(DEV)/bin/python tests/compiled/product.py

rewritten-tests: $(DEV)/.installed
	@$(DEV)/bin/python -m pytest --collect-only -q -n 0 >/dev/null 2>&1 || true

# Programs that the tests let our listeners talk to, or build such with, and that no package index has.
test-programs:
	@missing=""; \
	command -v nngcat >/dev/null || missing="$$missing nng-utils"; \
	echo '#include <stdio.h>' | gcc -E - >/dev/null 2>&1 || missing="$$missing gcc libc6-dev"; \
	echo '#include <zmq.h>' | gcc -E - >/dev/null 2>&1 || missing="$$missing libzmq3-dev"; \
	[ -e "$$($(PYTHON) -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h" ] || missing="$$missing python3-dev"; \
	command -v curl >/dev/null || missing="$$missing curl"; \
	command -v openssl >/dev/null || missing="$$missing openssl"; \
	command -v node >/dev/null || missing="$$missing nodejs"; \
	command -v npm >/dev/null || missing="$$missing npm"; \
	command -v chromium >/dev/null || command -v chromium-browser >/dev/null || missing="$$missing chromium"; \
	[ -z "$$missing" ] && exit 0; \
	if [ "$$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then \
		echo "The tests need programs that are missing. On Debian and Ubuntu, as root: apt-get install$$missing" >&2; exit 2; fi; \
	echo "The tests need programs that are missing. Installing them: apt-get install$$missing"; \
	apt-get install -y -qq $$missing >/dev/null 2>&1 || \
		{ apt-get update -qq && apt-get install -y -qq $$missing >/dev/null; } || \
		{ echo "apt-get could not install them. The tests need:$$missing. Install these packages, then run make test again" >&2; exit 2; }

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
	$(DEV)/bin/python tools/settings_page.py
	$(DEV)/bin/python tools/commands_page.py

docs: $(DEV)/.installed
	NO_MKDOCS_2_WARNING=1 $(DEV)/bin/mkdocs build --quiet --strict
	@echo "Open build/site/index.html"

fuzz: $(FUZZ)/.installed
	$(FUZZ)/bin/python -m fuzz $(TARGET) --seconds $(SECONDS)

bench: install $(DEV)/.installed
	$(DEV)/bin/python -m bench $(ARGS)

chaos: $(DEV)/.installed
	cd tests && exec ../$(DEV)/bin/python -m chaos $(ARGS)

clean:
	rm -rf $(VENV) $(DEV) $(LOWEST) $(FUZZ) .build build .mypy_cache .ruff_cache .pytest_cache .hypothesis

%/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Dragoman needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) --version 2>&1). Try: make PYTHON=python3.11" >&2; exit 2; }
	@$(PYTHON) -m venv $* || \
		{ echo "Could not make $*. On Debian and Ubuntu: apt-get install python3-venv" >&2; rm -rf $*; exit 2; }

# The product, installed again whenever a source has changed: compiled if it was compiled before, else interpreted, which
# is ready much sooner. Without --no-compile, pip would translate every module of every dependency to byte code.
$(VENV)/.installed: $(SOURCES) | $(VENV)/bin/python
ifeq ($(COMPILED),)
	@echo "Installing into $(VENV), interpreted: about 20 seconds. 'make install' compiles the hot path: half the CPU per job"
	@DRAGOMAN_PURE=later $(BIN)/$(PIP) --no-compile '.[all]'
else
	@echo "The sources have changed: compiling the hot path again: one to three minutes if two cores are free"
	@DRAGOMAN_PURE=never $(BIN)/$(PIP) '.[all]' || { echo "$(VENV) still holds the compiled install of older sources." \
		"Correct what is reported above, or replace it by an interpreted one: DRAGOMAN_PURE=1 make install" >&2; exit 2; }
endif
	@touch $@

# For tests and tools: nothing is installed again until pyproject.toml changes, for the sources run as they are.
$(DEV)/.installed: pyproject.toml | $(DEV)/bin/python
	DRAGOMAN_PURE=1 $(DEV)/bin/python -m pip install --quiet --disable-pip-version-check -e '.[test]'
	@touch $@

# The dependencies of the product in their oldest releases, those of the tests in their newest.
$(LOWEST)/.installed: pyproject.toml | $(LOWEST)/bin/python
	$(LOWEST)/bin/$(PIP) uv
	$(LOWEST)/bin/uv pip compile --quiet --resolution lowest-direct --extra all --python $(LOWEST)/bin/python \
		--output-file $(LOWEST)/lowest.txt pyproject.toml
	DRAGOMAN_PURE=1 $(LOWEST)/bin/$(PIP) -e '.[test]' --constraint $(LOWEST)/lowest.txt
	@touch $@

# Interpreted, because coverage of compiled code cannot be measured.
$(FUZZ)/.installed: pyproject.toml | $(FUZZ)/bin/python
	DRAGOMAN_PURE=1 $(FUZZ)/bin/python -m pip install --quiet --disable-pip-version-check -e '.[fuzz]'
	@touch $@
