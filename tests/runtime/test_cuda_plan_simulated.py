"""CUDA plans without a GPU: what a machine without a driver says, and everything else on a simulated driver."""

import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from inductor.runtime.cuda import CudaKernel
from inductor.runtime.plan import make_plan
from inductor.runtime.plan_spec import InputSpec, Launch, OutputRef, PlanSpec

HERE = Path(__file__).parent / "cuda_simulator"
SPEC = PlanSpec((InputSpec("tensor", "float32", (4,), (1,)),), (), (Launch(0, (0, 0), (1, 1, 1), (4,)),),
                (OutputRef("buf", 0),), ("add_one",), device="cuda:0")
KERNEL = CudaKernel(b"code", "add_one", 4, 0)


@pytest.fixture(scope="module")
def simulator(tmp_path_factory):
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    library = tmp_path_factory.mktemp("cuda") / "libsimulated.so"
    subprocess.run([compiler, "-std=gnu17", "-O1", "-shared", "-fPIC", "-o", library, HERE / "driver.c"], check=True)
    return library


def child(code_or_file, driver):
    """(exit status, output): the driver belongs to the whole process, so each one has a process of its own."""
    env = os.environ | {"PYFRAME_CUDA_DRIVER": str(driver)}
    done = subprocess.run([sys.executable, *code_or_file], env=env, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def test_on_the_simulated_driver(simulator):
    status, output = child(["-m", "pytest", "-q", "-p", "no:cacheprovider", str(HERE / "checks.py")], simulator)
    assert status == 0, output


def test_no_driver_is_an_error_only_of_a_plan_that_needs_it(tmp_path):
    code = f"""
import pickle
from inductor.runtime.plan import make_plan
from inductor.runtime.plan_spec import PlanSpec, OutputRef
assert make_plan(PlanSpec((), (), (), (OutputRef("const", 3),)), ())() == (3,)
spec, kernel = pickle.loads({pickle.dumps((SPEC, KERNEL))!r})
for _ in range(2):
    try:
        make_plan(spec, (kernel,))
    except RuntimeError as error:
        print(error)
"""
    status, output = child(["-c", code], tmp_path / "absent.so")
    assert status == 0, output
    assert output.count("a graph for a CUDA device needs the CUDA driver: ") == 2


def test_the_reference_is_for_the_cpu():
    with pytest.raises(ValueError, match="only the C extension"):
        make_plan(SPEC, (KERNEL,), python=True)
