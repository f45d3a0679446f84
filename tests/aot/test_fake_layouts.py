"""Strides that fake tensors predict are those of the kernels, and results of compiled programs have them."""

import pytest
import torch
import torch.nn.functional as F
from torch.testing._internal.common_methods_invocations import op_db

import pyframe
from tools import fake_layouts

# Operators that were wrong, beside some that never were.
WATCHED = (
    "add copysign floor_divide ldexp xlogy special.xlog1py logaddexp logical_and heaviside normal "
    "nn.functional.channel_shuffle native_batch_norm nn.functional.interpolate cumsum roll"
).split()


@pytest.mark.parametrize("name", WATCHED)
def test_fake_tensors_have_the_layouts_of_the_kernels(name, monkeypatch):
    monkeypatch.setattr(fake_layouts, "MOST_SAMPLES", 3)
    ops = [op for op in op_db if op.name == name][:2]
    counts, found, _ = fake_layouts.check_all(ops, "cpu", float("inf"))
    assert sum(counts.values()) > 2
    assert not found, found[0]


def test_a_wrong_layout_is_found(monkeypatch):
    op = next(op for op in op_db if op.name == "sin")
    monkeypatch.setitem(fake_layouts.TRACED_AS, op.op, lambda x, **kwargs: torch.sin(x).contiguous())
    _, found, _ = fake_layouts.check_all([op], "cpu", float("inf"))
    assert found
    assert "strides" in found[0].what


PROGRAMS = {
    "channel_shuffle": lambda image, x, y: F.channel_shuffle(image, 2),
    "xlogy": lambda image, x, y: torch.xlogy(x, y.abs()),
    "xlog1py": lambda image, x, y: torch.special.xlog1py(x, y.abs()),
    "floor_divide": lambda image, x, y: x // (y.abs() + 1),
    "copysign": lambda image, x, y: torch.copysign(x, y.sum()),
    "logical_and": lambda image, x, y: torch.logical_and(x[:, :1], y[0].t().contiguous().t()),
    "logaddexp": lambda image, x, y: torch.logaddexp(x[:, :1], y[0].t().contiguous().t()),
    "ldexp": lambda image, x, y: torch.ldexp(x[:, :1], y[0].t().contiguous().t()),
    "batch_norm": lambda image, x, y: F.batch_norm(x, None, None, training=True),
    "nearest": lambda image, x, y: F.interpolate(x, scale_factor=2, mode="nearest"),
    "nearest-exact": lambda image, x, y: F.interpolate(x, scale_factor=2, mode="nearest-exact"),
}


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_results_of_compiled_programs(name, grad, dynamic):
    torch.manual_seed(0)
    image = torch.randn(4, 6, 5, 5).to(memory_format=torch.channels_last)
    given = [x.requires_grad_(grad) for x in (image, torch.randn(5, 4, 3).permute(2, 1, 0), torch.randn(3, 4, 5))]
    want = PROGRAMS[name](*given)
    got = pyframe.compile(PROGRAMS[name], dynamic=dynamic)(*given)
    torch.testing.assert_close(got, want, check_stride=True)
