"""The C Plan against the Python reference, on hand-written specs."""

import gc
import sys
import threading
import weakref

import pytest
import torch

from inductor.runtime import cpp_build
from inductor.runtime.plan import delay_frees, input_spec, make_plan
from inductor.runtime.plan_spec import (
    ANY_DEVICE,
    Alloc,
    Arena,
    BufRef,
    Extern,
    Free,
    InputSpec,
    KernelCall,
    OutputRef,
    PlanSpec,
    ResultSpec,
    Slot,
    View,
)

SOURCE = """
#include <cmath>
#include <cstdint>
extern "C" void sin_plus(void** b, const int64_t* n) {
    auto x = (const float*)b[0]; auto y = (float*)b[1];
    for (int64_t i = 0; i < n[0]; i++) y[i] = std::sin(x[i]) + 1.0f;
}
extern "C" void twice(void** b, const int64_t* n) {
    auto x = (const float*)b[0]; auto y = (float*)b[1];
    for (int64_t i = 0; i < n[0]; i++) y[i] = 2.0f * x[i];
}
"""
NAMES = ("sin_plus", "twice")
BOTH = pytest.mark.parametrize("python", [False, True], ids=["c", "python"])


@pytest.fixture(scope="module")
def kernels():
    return cpp_build.kernel_addresses([cpp_build.build(SOURCE)], NAMES)


def spec_of(inputs, steps, outputs, constants=()):
    return PlanSpec(tuple(map(input_spec, inputs)), tuple(constants), tuple(steps), tuple(outputs), NAMES)


@BOTH
def test_kernel_into_fresh_tensor(kernels, python):
    x = torch.randn(4)
    spec = spec_of([x], [Alloc(1, "float32", (4,), (1,)), KernelCall(0, (0, 1), (4,))], [OutputRef("buf", 1)])
    plan = make_plan(spec, kernels, python=python)
    (first,) = plan(x)
    (second,) = plan(x)
    torch.testing.assert_close(first, x.sin() + 1)
    assert first.data_ptr() != second.data_ptr()
    assert not first.requires_grad


@BOTH
def test_arena_slots_meet_externs_and_views(kernels, python):
    x, w = torch.randn(4, 4), torch.randn(4, 4)
    steps = [
        Arena(256),
        Slot(2, 64, "float32", (4, 4), (4, 1)),
        KernelCall(1, (0, 2), (16,)),
        View(3, 2, (4, 4), (1, 4)),
        Alloc(4, "float32", (4, 4), (4, 1)),
        Extern("aten.addmm.out", (BufRef(1), BufRef(3), BufRef(1)), (("beta", 2.0),), (4,), ("out",)),
        Extern("aten.mm.default", (BufRef(4), BufRef(3)), (), (5,)),
        View(6, 5, (2, 4), (4, 1), 8, "float32"),
        Extern("aten.topk.default", (BufRef(6), 2), (), (7, 8)),
        Free(5),
    ]
    spec = spec_of([x, w], steps, [OutputRef("buf", n) for n in (4, 6, 7, 8)] + [OutputRef("const", 3)])
    plan = make_plan(spec, kernels, python=python)
    for _ in range(3):
        a, b, values, indices, three = plan(x, w)
        t = (2 * x).t()
        torch.testing.assert_close(a, torch.addmm(w, t, w, beta=2))
        torch.testing.assert_close(b, (a @ t)[2:])
        torch.testing.assert_close((values, indices), tuple(b.topk(2)))
        assert three == 3


@BOTH
def test_results_of_operators_have_the_strides_that_were_promised(kernels, python):
    x = torch.randn(3, 4)
    for expected in (ResultSpec("float32", (3, 4), (1, 3)), ResultSpec("float32", (3, 4), (4, 1))):
        step = Extern("aten.sin.default", (BufRef(0),), (), (1,), results=(expected,))
        (out,) = make_plan(spec_of([x], [step], [OutputRef("buf", 1)]), kernels, python=python)(x)
        assert out.stride() == expected.stride and torch.equal(out, x.sin())
    both = (None, ResultSpec("int64", (3, 2), (1, 3)))
    step = Extern("aten.topk.default", (BufRef(0), 2), (), (1, 2), results=both)
    values, at = make_plan(spec_of([x], [step], [OutputRef("buf", 1), OutputRef("buf", 2)]), kernels, python=python)(x)
    assert (values.stride(), at.stride()) == ((2, 1), (1, 3)) and torch.equal(at, x.topk(2)[1])


@BOTH
def test_result_of_another_size_or_dtype_than_promised_is_an_error(kernels, python):
    x = torch.randn(3, 4)
    for wrong in (ResultSpec("float32", (4, 3), (3, 1)), ResultSpec("float64", (3, 4), (4, 1))):
        step = Extern("aten.sin.default", (BufRef(0),), (), (1,), results=(wrong,))
        with pytest.raises(RuntimeError, match="size or dtype"):
            make_plan(spec_of([x], [step], [OutputRef("buf", 1)]), kernels, python=python)(x)


@BOTH
def test_outputs_that_are_inputs_are_the_same_objects(kernels, python):
    x = torch.randn(4)
    plan = make_plan(spec_of([x], [], [OutputRef("input", 0), OutputRef("const", None)]), kernels, python=python)
    assert plan(x)[0] is x
    assert plan(x)[1] is None


@BOTH
def test_forms(kernels, python):
    x = torch.randn(4)
    spec = spec_of([x], [], [OutputRef("input", 0)])
    assert make_plan(spec, kernels, form="single", python=python)(x) is x
    assert make_plan(spec, kernels, form="list", python=python)(x) == [x]


@BOTH
def test_bound_tensors_and_constants_are_read_afresh(kernels, python):
    x, p, c = torch.randn(2, 2), torch.nn.Parameter(torch.randn(2, 2)), torch.ones(2, 2)
    spec = spec_of([x, p], [Extern("aten.addmm.default", (BufRef(2), BufRef(0), BufRef(1)), (), (3,))],
                   [OutputRef("buf", 3)], [c])
    plan = make_plan(spec, kernels, bound=(p,), python=python)
    torch.testing.assert_close(plan(x)[0], c + x @ p.detach())
    p.data = torch.zeros(2, 2)
    torch.testing.assert_close(plan(x)[0], c)
    assert not plan(x)[0].requires_grad
    assert torch.is_grad_enabled()


@BOTH
@pytest.mark.parametrize("other, word", [
    (torch.randn(5), "size"), (torch.randn(4).double(), "dtype"), (torch.randn(2, 2), "dimensions"),
    (torch.randn(8)[::2], "stride"), (torch.empty(4, device="meta"), "device"),
])
def test_other_inputs_are_refused(kernels, python, other, word):
    spec = spec_of([torch.randn(4)], [], [OutputRef("input", 0)])
    with pytest.raises(ValueError, match=word):
        make_plan(spec, kernels, python=python)(other)


@BOTH
def test_an_extern_that_raises_restores_the_grad_mode(kernels, python):
    x = torch.randn(2, 3)
    plan = make_plan(spec_of([x], [Extern("aten.cholesky_solve.default", (BufRef(0), BufRef(0)), (), (1,))],
                             [OutputRef("buf", 1)]), kernels, python=python)
    with pytest.raises(RuntimeError):
        plan(x)
    assert torch.is_grad_enabled()
    with pytest.raises(TypeError, match="1 positional"):
        plan(x, x)


def tensors_alive():
    gc.collect()
    return sum(type(o) is torch.Tensor for o in gc.get_objects())


def test_calls_do_not_leak(kernels):
    x = torch.randn(4)
    steps = [Arena(64), Slot(1, 0, "float32", (4,), (1,)), KernelCall(1, (0, 1), (4,)),
             Extern("aten.relu.default", (BufRef(1),), (), (2,))]
    plan = make_plan(spec_of([x], steps, [OutputRef("buf", 2)]), kernels)
    alive = tensors_alive()
    before = sys.getrefcount(x)
    for _ in range(200):
        plan(x)
    gc.collect()
    assert sys.getrefcount(x) == before
    assert tensors_alive() < alive + 20


def test_threads_do_not_share_scratch_memory(kernels):
    n = 1 << 18
    x = torch.randn(n)
    steps = [Arena(4 * n), Slot(1, 0, "float32", (n,), (1,)), KernelCall(1, (0, 1), (n,)),
             Alloc(2, "float32", (n,), (1,)), KernelCall(1, (1, 2), (n,))]
    plan = make_plan(spec_of([x], steps, [OutputRef("buf", 2)]), kernels)
    wrong = []

    def work(k):
        y = x * k
        for _ in range(20):
            if not torch.equal(plan(y)[0], 4 * y):
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(1, 5)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not wrong


def test_a_base_is_freed_after_its_views():
    steps = [View(1, 0, (2,), (1,)), View(2, 1, (1,), (1,)), Free(0), Free(1), Free(2)]
    assert [s.buf for s in delay_frees(steps) if isinstance(s, Free)] == [2, 1, 0]


@BOTH
def test_a_view_of_a_tensor_that_starts_inside_its_storage(kernels, python):
    x = torch.arange(12.0)[2:]
    steps = [View(1, 0, (6,), (1,), 1), View(2, 1, (2,), (1,), 3), Extern("aten.neg.default", (BufRef(2),), (), (3,))]
    plan = make_plan(spec_of([x], steps, [OutputRef("buf", n) for n in (1, 2, 3)]), kernels, python=python)
    assert [y.tolist() for y in plan(x)] == [[3, 4, 5, 6, 7, 8], [6, 7], [-6, -7]]


@BOTH
def test_arguments_that_are_handed_over(kernels, python):
    x = torch.randn(4)
    steps = [Extern("aten.relu.default", (BufRef(0),), (), (1,)), Free(0), Extern("aten.neg.default", (BufRef(1),), (), (2,))]
    plan = make_plan(spec_of([x], steps, [OutputRef("buf", 2)]), kernels, python=python)
    want, alive, given = -x.relu(), weakref.ref(x), [x]
    del x
    (out,) = plan.take(given)
    assert given == [] and alive() is None
    torch.testing.assert_close(out, want)
    with pytest.raises(TypeError):
        plan.take([])
    x = torch.randn(4)
    torch.testing.assert_close(plan(x)[0], -x.relu())  # a plain call leaves them to the caller
    assert x.sum().isfinite()


@BOTH
def test_inputs_of_any_device(kernels, python):
    spec = PlanSpec((InputSpec("tensor", "float32", (4,), (1,)), InputSpec("tensor", "int64", (), (), ANY_DEVICE)), (),
                    (Extern("aten.relu.default", (BufRef(0),), (), (2,)),), (OutputRef("buf", 2),), ())
    plan, x = make_plan(spec, [], python=python), torch.randn(4)
    for seed in (torch.tensor(1), torch.tensor(1, device="meta")):
        torch.testing.assert_close(plan(x, seed)[0], x.relu())
    with pytest.raises(ValueError, match="dtype"):
        plan(x, torch.tensor(1.0))
