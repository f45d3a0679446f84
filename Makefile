# Everything runs in a virtual environment at the root, made on first use.
PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/.installed

.PHONY: demo test lint bench build clean

$(STAMP): pyproject.toml setup.py
	test -x $(PY) || $(PYTHON) -m venv $(VENV)
	$(PY) -m pip install -q --upgrade pip "setuptools>=77" wheel
	$(PY) -m pip install -q "$$($(PY) -c 'import tomllib; print(next(d for d in tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["test"] if d.startswith("torch==")))')"
	$(PY) -m pip install -q --no-build-isolation -e '.[test]'
	touch $@

build: $(STAMP)
	$(PY) setup.py -q build_ext --inplace

demo: build
	$(PY) examples/quickstart.py

test: build
	$(PY) -m pytest

lint: build
	$(PY) -m ruff check pyframe inductor tests benchmarks tools examples
	$(PY) -m mypy
	$(PY) tools/check_imports.py

bench: build
	$(PY) -m benchmarks.call_overhead
	$(PY) -m benchmarks.compile_time
	$(PY) -m benchmarks.models --suite demo

clean:
	rm -rf build *.egg-info pyframe/*.so inductor/*.so
