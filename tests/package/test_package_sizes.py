"""Packages whose sizes and ints vary."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from package_programs import ConvNet, Mlp
from package_util import run_cpp
from torch import nn

import pyframe


def scaled(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (x @ y).softmax(-1).mean(0) * x.shape[0] + x.reshape(-1, 2).sum()


def with_int(x: torch.Tensor, n: int) -> Any:
    return x.reshape(-1, n).sum(0) * n, x[: n * 2]


def branches(x: torch.Tensor) -> torch.Tensor:
    return x * 2 if x.shape[0] > 4 else x * 3


def attention(q: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return nn.functional.scaled_dot_product_attention(q, q, q, attn_mask=mask)


def rand(*size: int) -> torch.Tensor:
    return torch.randn(size)


CASES = {
    "batch": (lambda: Mlp().eval(), {0: 0}, [(rand(4, 24),), (rand(2, 24),), (rand(77, 24),)]),
    "images": (lambda: ConvNet().eval(), {0: (0, 2, 3)}, [
        (rand(2, 3, 12, 12),), (rand(3, 3, 20, 16),), (rand(5, 3, 9, 31),)]),
    "windows": (lambda: nn.Sequential(nn.Conv2d(3, 4, 3, 2, 1), nn.MaxPool2d(3, 2, 1), nn.AvgPool2d(2)).eval(), {
        0: (2, 3)}, [(rand(2, 3, 32, 32),), (rand(2, 3, 33, 40),), (rand(2, 3, 46, 35),), (rand(2, 3, 37, 39),)]),
    "scaled": (lambda: lambda x: nn.functional.interpolate(x, scale_factor=1.3), {0: (2, 3)}, [
        (rand(1, 2, 20, 30),), (rand(1, 2, 10, 23),), (rand(1, 2, 59, 40),)]),
    "all": (lambda: scaled, True, [(rand(4, 6), rand(6, 3)), (rand(8, 4), rand(4, 9)), (rand(32, 48), rand(48, 16))]),
    "int": (lambda: with_int, True, [(rand(12), 3), (rand(20), 5), (rand(8), 2)]),
    "int by name": (lambda: with_int, {"x": 0, "n": True}, [(rand(12), 3), (rand(20), 5), (rand(8), 2)]),
    "rows": (lambda: lambda x: x.view(-1, 4) * 2, {0: 0}, [(rand(6, 8),), (rand(3, 8),)]),
    "elements": (lambda: lambda x: x.view(-1, 4) * 2, {0: 0}, [(rand(12),), (rand(8),), (rand(40),)]),
    "attention": (lambda: attention, {0: (0, 2), 1: (0, 1)}, [
        (rand(2, 2, 8, 16), rand(8, 8)), (rand(5, 2, 24, 16), rand(24, 24))]),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_one_package_serves_all_sizes(name: str, tmp_path: Path, programs: Path) -> None:
    make, dynamic, calls = CASES[name]
    torch.manual_seed(2)
    f = make()
    path = tmp_path / "model.pyframe"
    pyframe.package(f, calls[0], path, dynamic=dynamic)
    package = pyframe.load(path)
    for args in (*calls, calls[0]):
        with torch.no_grad():
            want = f(*args)
        got = package(*args)
        torch.testing.assert_close(got, want)
        cpp, _ = run_cpp(programs, tmp_path, path, args, varying_ints=True)
        for a, b in zip(cpp, got if isinstance(got, tuple) else [got], strict=True):
            assert a.equal(b)


def test_sizes_for_which_it_was_not_made(tmp_path: Path, programs: Path) -> None:
    path = tmp_path / "model.pyframe"
    pyframe.package(branches, (rand(8, 3),), path, dynamic={0: 0})
    package = pyframe.load(path)
    x = rand(5, 3)
    assert package(x).equal(x * 2)
    for size in (1, 4):
        with pytest.raises(pyframe.UserError, match=r"requires x.size\(0\) > 4|requires x.size\(0\) >= 2"):
            package(rand(size, 3))
        with pytest.raises(AssertionError, match=r"requires x.size\(0\) >"):
            run_cpp(programs, tmp_path, path, (rand(size, 3),))
    for other in (rand(5, 4), rand(5), rand(5, 3).double(), rand(3, 5).t()):
        with pytest.raises(ValueError, match="input 0"):
            package(other)
        with pytest.raises(AssertionError, match="input 0"):
            run_cpp(programs, tmp_path, path, (other,))


def test_a_size_that_varies_is_at_least_two_in_the_example(tmp_path: Path) -> None:
    for size in (0, 1):
        with pytest.raises((pyframe.PackageError, pyframe.UserError)):
            pyframe.package(lambda x: x * 2, (rand(size, 3),), tmp_path / "model.pyframe", dynamic={0: 0})


def test_a_number_that_may_depend_on_sizes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(pyframe.PackageError, match="a number"):
        pyframe.package(lambda x: (x * 2, x.shape[0]), (rand(4),), tmp_path / "model.pyframe", dynamic=True)
    path = tmp_path / "model.pyframe"
    pyframe.package(lambda x: (x * 2, x.shape[0]), (rand(4),), path)
    assert pyframe.load(path)(rand(4))[1] == 4


def test_dynamic_must_name_arguments(tmp_path: Path) -> None:
    for dynamic in ({1: 0}, {"y": 0}, {0: 2}, {"n": 0.5}):
        with pytest.raises(pyframe.UserError, match="dynamic"):
            pyframe.package(
                lambda x, n: x * n, (rand(4, 4),), tmp_path / "model.pyframe", kwargs={"n": 3}, dynamic=dynamic
            )  # fmt: skip
