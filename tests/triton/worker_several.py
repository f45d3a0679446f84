"""Steps of optimizers as on a GPU, where the updates of many parameters are a few launches; in Triton's interpreter."""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[2])]

from tools.fuzz_graphs import fake_cuda  # noqa: E402

fake_cuda.install()

import torch  # noqa: E402

import inductor.build  # noqa: E402
import pyframe  # noqa: E402
from inductor.runtime.plan_spec import Launch  # noqa: E402

LAUNCHES = []
make_plan = inductor.build.make_plan


def counted(spec, *args, **kwargs):
    LAUNCHES.append(sum(isinstance(step, Launch) for step in spec.steps))
    return make_plan(spec, *args, **kwargs)


inductor.build.make_plan = counted


def check(make, launches, sizes=((4, 16), (5, 8), (3,), (1,), (7, 200))):
    """Compares three steps with eager's. `launches`: the most that a compiled step makes for 15 parameters."""
    torch.manual_seed(0)
    given = [torch.randn(size) for size in sizes * 3]
    mine, theirs = [[torch.nn.Parameter(x.clone()) for x in given] for _ in range(2)]
    a, b = make(mine), make(theirs)
    compiled = pyframe.compile(a.step)
    for k in range(3):
        for x, y in zip(mine, theirs):
            x.grad = torch.randn_like(x)
            y.grad = x.grad.clone()
        (compiled if k else a.step)()
        b.step()
    torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6)
    assert LAUNCHES and max(LAUNCHES) <= launches, LAUNCHES
    LAUNCHES.clear()


check(lambda params: torch.optim.Adam(params, 1e-3), 8)
check(lambda params: torch.optim.SGD(params, 1e-3, momentum=0.9), 6)
check(lambda params: torch.optim.Adam(params, 1e-3, foreach=True), 8)
check(lambda params: torch.optim.SGD(params, 1e-3, momentum=0.9, foreach=True), 6)


def dependent(a, b, c, d):
    a.add_(1), b.add_(1), c.add_(a), d.add_(c)  # the third update needs the first, and the last the third
    return a * 2, b * 2, c * 2, d * 2


for size in (5,), (9, 16):
    args, want = [[torch.arange(float(k), k + 1).expand(size).clone() for k in range(4)] for _ in range(2)]
    torch.testing.assert_close(pyframe.compile(dependent)(*args), dependent(*want))
    torch.testing.assert_close(args, want)
print("right")
