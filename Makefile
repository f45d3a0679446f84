# Everything runs in a virtual environment at the root, made on first use.
PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/.installed
WORKERS ?= 2

.PHONY: demo test test-gpu lint bench bench-gpu build clean

$(STAMP): pyproject.toml setup.py
	test -x $(PY) || $(PYTHON) -m venv $(VENV)
	$(PY) -m pip install -q --upgrade pip "setuptools>=77" wheel
	$(PY) -m pip install -q "$$($(PY) -c 'import tomllib; print(next(d for d in tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["test"] if d.startswith("torch==")))')"
	$(PY) -m pip install -q --no-build-isolation -e '.[test]'
	touch $@

# The environment is made only where it is the one that is used.
build: $(if $(filter $(VENV)/%,$(PY)),$(STAMP))
	$(PY) setup.py -q build_ext --inplace

demo: build
	$(PY) examples/quickstart.py

# Two processes; their threads wait without spinning, as there are more of them than cores.
test: build
	OMP_WAIT_POLICY=passive $(PY) -m pytest -n $(WORKERS)

# On a machine with a GPU, in an environment that has torch for it: `make test-gpu PY=python3`.
test-gpu: build
	$(PY) -m pytest tests/gpu tests/aot/test_training_cuda.py

bench-gpu: build
	$(PY) -m benchmarks.kernels --device cuda
	$(PY) -m benchmarks.models --suite gpu
	$(PY) -m benchmarks.training --device cuda

lint: build
	$(PY) -m ruff check pyframe inductor tests benchmarks tools examples
	$(PY) -m mypy
	$(PY) tools/check_imports.py

bench: build
	$(PY) -m benchmarks.call_overhead
	$(PY) -m benchmarks.compile_time
	$(PY) -m benchmarks.models --suite demo
	$(PY) -m benchmarks.training

clean:
	rm -rf build *.egg-info pyframe/*.so inductor/*.so
