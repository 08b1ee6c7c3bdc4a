# `make demo` and `make test` each work alone on a fresh machine with Python 3.11 or newer, pip and make.
# They build .venv once; a stamp for each set of packages makes the next call start at once.

PYTHON ?=
JOBS ?= 2
PYTEST ?=
BIN := .venv/bin
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --editable

.PHONY: help demo test test-slow lint format bench docs clean

help:
	@echo 'make demo       trace ResNet-50 with a symbolic batch, run it, compare with onnxruntime'
	@echo 'make test       all tests but the slow ones (JOBS=$(JOBS) processes; PYTEST="-k conv" adds arguments)'
	@echo 'make test-slow  the slow tests'
	@echo 'make lint       ruff check, ruff format --check, pyright'
	@echo 'make format     let ruff rewrite the code'
	@echo 'make bench      time tracing and running'
	@echo 'make docs       put in anew what is generated: table and output in the README, outputs of the notebooks'
	@echo 'make clean      remove .venv and everything built'

demo: .venv/demo.stamp
	$(BIN)/python -m jaxshape._demo

test: .venv/dev.stamp
	$(BIN)/python -m pytest -n $(JOBS) $(PYTEST)

test-slow: .venv/dev.stamp
	$(BIN)/python -m pytest -n $(JOBS) -m slow $(PYTEST)

lint: .venv/dev.stamp
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/pyright --pythonpath $(BIN)/python

format: .venv/dev.stamp
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

bench: .venv/dev.stamp
	$(BIN)/python tests/benchmarks/bench.py

docs: .venv/dev.stamp
	JAX_PLATFORMS=cpu $(BIN)/python tests/test_readme.py
	JAX_PLATFORMS=cpu $(BIN)/python tests/test_notebooks.py

clean:
	rm -rf .venv build dist .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/demo.stamp: pyproject.toml | $(BIN)/pip
	@echo 'Installing jaxshape and what the demo needs into .venv ...'
	$(PIP_INSTALL) '.[cli,validate]'
	@touch $@

.venv/dev.stamp: pyproject.toml | $(BIN)/pip
	@echo 'Installing jaxshape and the development tools into .venv ...'
	$(PIP_INSTALL) '.[dev]'
	@touch $@ .venv/demo.stamp

# Each candidate is run, not just looked up: a version manager's shim may exist for a Python that does not.
# Debian's python3 without python3-venv lacks ensurepip alone, which pip itself can stand in for; a .venv
# of the user's own without pip (uv makes such) gets one.
$(BIN)/pip:
	@found=; \
	for python in $(PYTHON) python3 python3.13 python3.12 python3.11; do \
	  if $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then found=$$python; break; fi; \
	done; \
	if [ -z "$$found" ]; then \
	  echo 'jaxshape needs Python 3.11 or newer and found none; name one with PYTHON=/path/to/python' >&2; exit 1; \
	fi; \
	if [ ! -x $(BIN)/python ]; then \
	  echo "Creating .venv with $$($$found --version) ..."; \
	  $$found -m venv .venv >/dev/null 2>&1 || $$found -m venv --clear --without-pip .venv; \
	fi; \
	[ -x $@ ] \
	|| $$found -m pip --python $(BIN)/python install --quiet --disable-pip-version-check pip \
	|| { rm -rf .venv; \
	     echo "$$found makes no virtual environment; on Debian or Ubuntu: apt-get install python3-venv" >&2; exit 1; }
