"""Generated Triton kernels run by Triton's interpreter, against torch."""

import json
from pathlib import Path

import forked_python
import pytest

pytest.importorskip("triton")
HERE = Path(__file__).resolve().parent
from op_samples import every  # noqa: E402


def run(suite):
    done = forked_python.run_file(HERE / "worker_triton.py", ("pytest", "torch"), [suite], timeout=1200)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def samples():
    return run("samples")


@pytest.mark.parametrize("name", every())
def test_sample(samples, name):
    assert not samples[name], samples[name]


def test_cases():
    results = run("cases")
    failed = {name: error for name, error in results.items() if error}
    assert results and not failed, "\n".join(f"{name}:\n{error}" for name, error in failed.items())
