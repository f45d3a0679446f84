"""Access to memory in C++ kernels that is not along adjacent elements: tiles and strides."""

import subprocess
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from kernel_groups import check
from test_cpp_axes import source_of

import pyframe
from inductor.package.targets import Machine, target_of
from inductor.runtime import cpp_build

DTYPES = [torch.float32, torch.float64, torch.int64, torch.int32, torch.int8, torch.bfloat16, torch.float16, torch.bool]


@pytest.mark.parametrize("target", ["generic", "avx2", "avx512", "native"])
@pytest.mark.parametrize("name", ["vector_memory", "vector_division"])
def test_vectors(name, target, tmp_path):
    if target != "native" and not Machine.here(None).runs(target_of(target)):
        pytest.skip("this processor does not run it")
    flags = ["-march=native"] if target == "native" else target_of(target).flags
    source, program = Path(__file__).with_name(f"{name}.cpp"), tmp_path / "program"
    line = [*cpp_build.find_compiler(None), "-std=c++17", "-O1", "-fno-math-errno", "-fno-trapping-math", "-w", *flags]
    subprocess.run([*line, f"-I{cpp_build.INCLUDE}", str(source), "-o", str(program)], check=True)
    done = subprocess.run([str(program)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows,columns", [(16, 32), (37, 53), (100, 16), (17, 64), (64, 31)])
def test_transposed_tiles(dtype, rows, columns):
    x, y, z = ((torch.randn(s) * 9).to(dtype) for s in [(rows, columns), (columns, rows), (3, rows, columns)])
    loads = lambda x, y: (x.t() ^ y if dtype == torch.bool else x.t() + y).contiguous()  # noqa: E731
    assert "ld_tile" in source_of(loads, x, y)
    check(loads, x, y, rtol=2e-2)
    stores = lambda x, z: torch.where(x[None] == z, x, z).transpose(1, 2).contiguous()  # noqa: E731
    check(stores, x, z)


def test_transposed_stores():
    x, y = torch.randn(48, 37), torch.randn(48, 37)
    stores = lambda x, y: (x * y + x).t().contiguous()  # noqa: E731
    assert "st_tile" in source_of(stores, x, y) or "ld_tile" in source_of(stores, x, y)
    check(stores, x, y)
    check(lambda x, y: ((x * y).t().contiguous(), x + y), x, y)


def test_sizes_of_tiles_that_vary():
    compiled = pyframe.compile(lambda x, y: (x.t() + y).contiguous() * 2, dynamic=True)
    for rows, columns in [(64, 64), (37, 53), (16, 20), (5, 70), (100, 3)]:
        x, y = torch.randn(rows, columns), torch.randn(columns, rows)
        torch.testing.assert_close(compiled(x, y), (x.t() + y) * 2)


@pytest.mark.parametrize("dtype", DTYPES[:-1])
@pytest.mark.parametrize("columns", [64, 37, 9])
def test_elements_at_a_distance(dtype, columns):
    x = (torch.randn(5, 3 * columns) * 9).to(dtype)
    check(lambda x: (x[:, ::2] + 1, x[:, 1::3] + 1, x[:, ::5] + 1), x)
    check(lambda x: (x.flip(-1) + 1, x.flip(0) + x), x)
    if dtype.is_floating_point:
        check(lambda x: (F.avg_pool2d(x[None, None], (1, 2)), F.max_pool2d(x[None], (2, 3))), x, rtol=1e-2)
