"""Packages with kernels for a GPU, made from functions of tensors on the CPU and on the GPU: from Python, and from C++."""

import copy
import sys
from pathlib import Path

import pytest
import torch
from torch.utils import _pytree as pytree

import pyframe

if not torch.cuda.is_available():
    pytest.skip("no GPU", allow_module_level=True)
pytest.importorskip("triton")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "package"))
from package_programs import PROGRAMS  # noqa: E402
from package_util import build_once, run_cpp  # noqa: E402
from test_package_programs import tensors  # noqa: E402

MAJOR, MINOR = torch.cuda.get_device_capability()
TARGET = f"sm_{MAJOR}{MINOR}"
ON_CPU_ALONE = "operators of onednn"
MADE_THERE = ("conv", "nested", "views", "operators", "attention", "half", "ints")


@pytest.fixture(scope="session")
def programs(tmp_path_factory):
    """The programs in C++ that run packages."""
    return build_once(tmp_path_factory)


def on_gpu(value):
    return pytree.tree_map_only(torch.Tensor, lambda x: x.cuda(), value)


@pytest.mark.parametrize(
    ("name", "made_on"), [*((name, "cpu") for name in PROGRAMS if name != ON_CPU_ALONE), *((name, "cuda") for name in MADE_THERE)]
)
def test_equals_eager_and_cpp(name, made_on, tmp_path, programs):
    make, arguments = PROGRAMS[name]
    torch.manual_seed(1)
    f = make()
    args, kwargs = arguments()
    path = tmp_path / "model.pyframe"
    there = copy.deepcopy(f).cuda() if isinstance(f, torch.nn.Module) else f
    given = (there, *on_gpu((args, kwargs))) if made_on == "cuda" else (f, args, kwargs)
    pyframe.package(given[0], given[1], path, kwargs=given[2], targets=[TARGET])
    package = pyframe.load(path)
    args, kwargs = arguments()
    with torch.no_grad():
        want = tensors(copy.deepcopy(f)(*copy.deepcopy(args), **copy.deepcopy(kwargs)))
    got = tensors(package(*on_gpu(args), **on_gpu(kwargs)))
    assert len(got) == len(want)
    for a, b in zip(got, want, strict=True):
        assert a.is_cuda
        torch.testing.assert_close(a.cpu(), b, equal_nan=True, rtol=1e-3, atol=1e-4)
    cpp, _ = run_cpp(programs, tmp_path, path, args, kwargs, PYFRAME_TEST_DEVICE="cuda:0")
    for a, b in zip(cpp, got, strict=True):
        torch.testing.assert_close(a, b.cpu(), equal_nan=True)


def test_sizes_that_vary(tmp_path, programs):
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.LayerNorm(64), torch.nn.Linear(64, 8))
    path = tmp_path / "model.pyframe"
    pyframe.package(model, (torch.randn(5, 32),), path, targets=[TARGET], dynamic={0: 0})
    package = pyframe.load(path)
    for rows in (2, 7, 300):
        x = torch.randn(rows, 32)
        with torch.no_grad():
            want = model(x)
        torch.testing.assert_close(package(x.cuda()).cpu(), want, rtol=1e-3, atol=1e-4)
        (got,), _ = run_cpp(programs, tmp_path, path, (x,), PYFRAME_TEST_DEVICE="cuda:0")
        torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-4)
