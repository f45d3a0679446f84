"""Strides that fake tensors predict are those of the kernels, and results of compiled programs have them."""

from pathlib import Path

import forked_python
import pytest
import torch
import torch.nn.functional as F

import pyframe

ROOT = Path(__file__).resolve().parents[2]
# Operators that were wrong, beside some that never were.
WATCHED = (
    "add copysign floor_divide ldexp xlogy special.xlog1py logaddexp logical_and heaviside normal "
    "nn.functional.channel_shuffle native_batch_norm nn.functional.interpolate cumsum roll"
).split()
CHECK = """
import sys
from tools import fake_layouts

fake_layouts.MAX_SAMPLES = 3
for name in sys.argv[1:]:
    ops = [op for op in fake_layouts.op_db if op.name == name][:2]
    counts, found, _ = fake_layouts.check_all(ops, "cpu", float("inf"))
    assert sum(counts.values()) > 2, name
    assert not found, found[0]
"""
CHECK_WRONG = """
import torch
from tools import fake_layouts

op = next(op for op in fake_layouts.op_db if op.name == "sin")
fake_layouts.TRACED_AS[op.op] = lambda x, **kwargs: torch.sin(x).contiguous()
_, found, _ = fake_layouts.check_all([op], "cpu", float("inf"))
assert found and "strides" in found[0].what
"""


def check(code: str, *names: str) -> None:
    """In a process of its own: torch's database, which takes seconds to import, forbids to set flags of backends."""
    run = forked_python.run(code, ["torch", "tools.fake_layouts"], names, folder=ROOT, timeout=300)
    assert run.returncode == 0, run.stderr[-2000:]


def test_fake_tensors_have_the_layouts_of_the_kernels():
    check(CHECK, *WATCHED)


def test_a_wrong_layout_is_found():
    check(CHECK_WRONG)


def _volume(image):
    return torch.stack([image, image], 2).contiguous(memory_format=torch.channels_last_3d)


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
    "volumes": lambda image, x, y: F.interpolate(_volume(image), scale_factor=2, mode="nearest"),
    "volumes, exact": lambda image, x, y: F.interpolate(_volume(image), scale_factor=2, mode="nearest-exact"),
    "plain volumes": lambda image, x, y: F.interpolate(_volume(image).contiguous() * 2, scale_factor=2, mode="nearest"),
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


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("shifts, dims", [(1, 0), (2, 0), (0, 0), ((1, 2), (2, 3)), ((1, 1), (1, 1)), (-3, 1), (1, ())])
def test_roll_of_channels_last_images(shifts, dims, dynamic):
    def rolled(x):
        return x.roll(shifts, dims)

    compiled = pyframe.compile(rolled, dynamic=dynamic)
    for n in (2, 3):
        x = torch.randn(n, 3, 4, 5).contiguous(memory_format=torch.channels_last)
        want, got = rolled(x), compiled(x)
        assert torch.equal(got, want) and got.stride() == want.stride()


INDEXED = {
    "first": lambda x, i, j: x[i],
    "last": lambda x, i, j: x[..., i],
    "between": lambda x, i, j: x[:, i],
    "apart": lambda x, i, j: x[i, :, i],
    "two": lambda x, i, j: x[i, j],
    "of fewer dimensions": lambda x, i, j: x[i, j[0]],
    "half precision": lambda x, i, j: x.bfloat16()[j, i],
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", INDEXED)
def test_indices_of_another_layout_decide_the_layout_of_the_result(name, dynamic):
    compiled = pyframe.compile(INDEXED[name], dynamic=dynamic)
    for n in (3, 5):
        x, i, j = torch.randn(4, 5, 4), torch.randint(4, (n, 2)).t(), torch.randint(4, (2, n))
        for given in ((x, i, j), (x.permute(2, 0, 1), j, i)):
            want, got = INDEXED[name](*given), compiled(*given)
            assert torch.equal(got, want) and got.stride() == want.stride()
