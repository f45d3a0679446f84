"""Packages whose constants are computed when they are made."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from package_programs import PROGRAMS, ConvNet, onednn, rand
from package_util import run_cpp
from torch import nn

import pyframe

FREEZING = {"freezing": True}


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 64)
        self.scale = nn.Parameter(torch.rand(64))

    def forward(self, x: torch.Tensor) -> Any:
        return self.linear(x) * self.scale.exp(), self.scale


CASES = {
    "conv": (ConvNet, lambda: rand(2, 3, 12, 12)),
    "onednn": (onednn, lambda: rand(32, 3, 8, 8)),
    "scaled": (Scaled, lambda: rand(40, 64)),
}


@pytest.mark.parametrize("name", CASES)
def test_equals_eager_and_cpp(name: str, tmp_path: Path, programs: Path) -> None:
    make, argument = CASES[name]
    torch.manual_seed(3)
    model, x, path = make().eval(), argument(), tmp_path / "model.pyframe"
    pyframe.package(model, (x,), path, options=FREEZING)
    package = pyframe.load(path)
    with torch.no_grad():
        want = model(x)
    for each in (package, copy.deepcopy(package)):
        torch.testing.assert_close(each(x), want, rtol=1e-4, atol=1e-5)
    cpp, _ = run_cpp(programs, tmp_path, path, (x,))
    got = package(x)
    for a, b in zip(cpp, got if isinstance(got, tuple) else (got,), strict=True):
        assert a.equal(b)


def test_batch_norms_and_unread_weights_are_not_in_the_file(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Conv2d(32, 64, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU()).eval()
    sizes = []
    for options in ({}, FREEZING):
        path = tmp_path / "model.pyframe"
        pyframe.package(model, (rand(1, 32, 9, 9),), path, options=options, targets=["generic"])
        package = pyframe.load(path)
        sizes.append(path.stat().st_size)
        assert ("1.running_mean" in package.constants) == (not options)
    assert sizes[1] < sizes[0] + 4096  # the folded weight takes the place of the weight


def test_sizes_that_vary(tmp_path: Path, programs: Path) -> None:
    torch.manual_seed(4)
    model, path = ConvNet().eval(), tmp_path / "model.pyframe"
    pyframe.package(model, (rand(2, 3, 12, 12),), path, dynamic={0: 0}, options=FREEZING)
    package = pyframe.load(path)
    for n in (3, 7):
        x = rand(n, 3, 12, 12)
        with torch.no_grad():
            torch.testing.assert_close(package(x), model(x), rtol=1e-4, atol=1e-5)
        (cpp,), _ = run_cpp(programs, tmp_path, path, (x,))
        assert cpp.equal(package(x))


def test_a_buffer_that_is_written_is_no_constant(tmp_path: Path) -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("total", torch.zeros(4))
            self.weight = nn.Parameter(torch.rand(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.total.add_(1)
            return x * self.total * self.weight.exp()

    model, x = Counting(), torch.rand(4)
    pyframe.package(model, (x,), tmp_path / "m.pyframe", targets=["generic"], options=FREEZING)
    package = pyframe.load(tmp_path / "m.pyframe")
    for k in (1, 2):
        torch.testing.assert_close(package(x), x * k * model.weight.detach().exp())


def test_options_are_checked(tmp_path: Path) -> None:
    make, arguments = PROGRAMS["scalar"]
    for options in ({"frozen": True}, {"freezing": 1}):
        with pytest.raises(pyframe.UserError, match="freezing"):
            pyframe.package(make(), arguments()[0], tmp_path / "m.pyframe", options=options)
