"""Every operator sample as compiled C++ against torch itself."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from op_samples import every, lowered

from inductor.codegen import codegen
from inductor.runtime import cpp_build
from inductor.runtime.plan import make_plan
from inductor.schedule import schedule

torch.manual_seed(0)
SAMPLES = every()


def generate(name):
    fn, *args = SAMPLES[name]
    graph = lowered(fn, *args)
    return codegen(schedule(graph), graph)


@pytest.fixture(scope="module")
def built():
    generated = {name: generate(name) for name in SAMPLES}

    def build(item):
        name, (source, spec) = item
        return name, (spec, [cpp_build.build(text) for text in source.texts()])

    with ThreadPoolExecutor(max_workers=2) as pool:
        return dict(pool.map(build, generated.items()))


@pytest.mark.parametrize("name", SAMPLES)
def test_sample(built, name):
    fn, *args = SAMPLES[name]
    spec, libraries = built[name]
    plan = make_plan(spec, cpp_build.kernel_addresses(libraries, spec.kernel_names), form="list")
    expected = fn(*args)
    expected = list(expected) if isinstance(expected, (tuple, list)) else [expected]
    actual = plan(*args)
    assert len(actual) == len(expected)
    for a, e in zip(actual, expected):
        tol = 2e-2 if e.dtype in (torch.bfloat16, torch.float16) else 1e-5
        torch.testing.assert_close(a, e, rtol=tol, atol=tol, equal_nan=True)
        assert all(n <= 1 or x == y for n, x, y in zip(e.shape, a.stride(), e.stride()))
