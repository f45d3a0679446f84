"""Plans on a real CUDA device: hand-written PTX kernels, one of Triton's, streams, memory, errors, host time."""

import gc
import sys
import threading
import time

import pytest
import torch

from inductor.runtime.cuda import CudaKernel
from inductor.runtime.plan import input_spec, make_plan
from inductor.runtime.plan_spec import (
    Alloc,
    Arena,
    BufRef,
    Extern,
    Free,
    InputSpec,
    Launch,
    OutputRef,
    PlanSpec,
    Slot,
    Status,
    View,
)

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

PTX = b"""
.version 7.0
.target sm_70
.address_size 64

.extern .shared .align 16 .b8 scratch[];

// y[i] = x[i] + 1
.visible .entry add_one(.param .u64 x, .param .u64 y, .param .u32 n)
{
    .reg .pred %p;
    .reg .f32 %f;
    .reg .b32 %r<4>;
    .reg .b64 %d<3>;
    mov.u32 %r0, %ctaid.x;
    mov.u32 %r1, %ntid.x;
    mov.u32 %r2, %tid.x;
    mad.lo.s32 %r0, %r0, %r1, %r2;
    ld.param.u32 %r3, [n];
    setp.ge.s32 %p, %r0, %r3;
    @%p bra DONE;
    ld.param.u64 %d0, [x];
    ld.param.u64 %d1, [y];
    mul.wide.s32 %d2, %r0, 4;
    add.s64 %d0, %d0, %d2;
    add.s64 %d1, %d1, %d2;
    ld.global.f32 %f, [%d0];
    add.f32 %f, %f, 0f3F800000;
    st.global.f32 [%d1], %f;
DONE:
    ret;
}

// *status = 1 unless *index < n
.visible .entry check_index(.param .u64 index, .param .u64 status, .param .u32 n)
{
    .reg .pred %p;
    .reg .b32 %r;
    .reg .b64 %d<4>;
    ld.param.u64 %d0, [index];
    ld.param.u64 %d1, [status];
    ld.param.u32 %r, [n];
    cvt.s64.s32 %d2, %r;
    ld.global.u64 %d3, [%d0];
    setp.lt.s64 %p, %d3, %d2;
    @%p bra DONE;
    mov.u64 %d3, 1;
    st.global.u64 [%d1], %d3;
DONE:
    ret;
}

// y[i] = x[n - 1 - i] by way of the last n floats of `bytes` bytes of shared memory, in one block of n threads
.visible .entry reverse(.param .u64 x, .param .u64 y, .param .u32 n, .param .u32 bytes)
{
    .reg .f32 %f;
    .reg .b32 %r<6>;
    .reg .b64 %d<3>;
    mov.u32 %r0, %tid.x;
    ld.param.u32 %r1, [n];
    ld.param.u32 %r2, [bytes];
    ld.param.u64 %d0, [x];
    ld.param.u64 %d1, [y];
    mul.wide.s32 %d2, %r0, 4;
    add.s64 %d0, %d0, %d2;
    add.s64 %d1, %d1, %d2;
    ld.global.f32 %f, [%d0];
    mov.u32 %r3, scratch;
    add.s32 %r3, %r3, %r2;
    add.s32 %r4, %r0, 1;
    shl.b32 %r4, %r4, 2;
    sub.s32 %r4, %r3, %r4;
    st.shared.f32 [%r4], %f;
    bar.sync 0;
    sub.s32 %r5, %r1, %r0;
    shl.b32 %r5, %r5, 2;
    sub.s32 %r5, %r3, %r5;
    ld.shared.f32 %f, [%r5];
    st.global.f32 [%d1], %f;
    ret;
}
"""
NAMES = ("add_one", "check_index")
N = 1000
FLAT = ("float32", (N,), (1,))
GRID = (8, 1, 1)  # blocks of 4 warps


def kernels_of(code=PTX):
    return tuple(CudaKernel(code, name, 4, 0) for name in NAMES)


def plan_of(inputs, steps, outputs, kernels=None, device="cuda:0", **more):
    spec = PlanSpec(tuple(map(input_spec, inputs)), (), tuple(steps), tuple(OutputRef("buf", o) for o in outputs),
                    ("k",) * len(kernels or NAMES), device=device, **more)
    return make_plan(spec, kernels or kernels_of())


def chain(n, device="cuda:0"):
    """`n` dependent kernels: x + n."""
    steps = [Arena(8192)] if n > 1 else []
    for i in range(n):
        memory = Slot(i + 1, 4096 * (i % 2), *FLAT) if i < n - 1 else Alloc(i + 1, *FLAT)
        steps += [memory, Launch(0, (i, i + 1), GRID, (N,))]
    return plan_of([torch.empty(N, device=device)], steps, [n], device=device)


@pytest.fixture
def x():
    return torch.randn(N, device="cuda:0")


@pytest.mark.parametrize("n", [1, 2, 5, 50])
def test_dependent_kernels(x, n):
    (y,) = chain(n)(x)
    torch.testing.assert_close(y, x + n)
    assert y.device == x.device
    assert y.data_ptr() != x.data_ptr()


def test_kernels_views_and_operators_share_memory(x):
    w, b = torch.randn(10, 10, device="cuda:0"), torch.randn(3, 4, 4, device="cuda:0")
    steps = [
        Arena(1 << 16),
        Slot(3, 4096, *FLAT),
        Launch(0, (0, 3), GRID, (N,)),
        View(4, 3, (10, 100), (100, 1)),
        View(5, 3, (100, 10), (1, 100)),
        Slot(6, 8192, "float32", (10, 10), (10, 1)),
        Extern("aten.mm.out", (BufRef(4), BufRef(5)), (), (6,), ("out",)),
        Alloc(7, "float32", (10, 10), (10, 1)),
        Extern("aten.addmm.out", (BufRef(6), BufRef(6), BufRef(1)), (("beta", 2.0),), (7,), ("out",)),
        Extern("aten.bmm.default", (BufRef(2), BufRef(2)), (), (8,)),
        Extern("aten.topk.default", (BufRef(7), 2), (), (9, 10)),
        Free(3),
    ]
    plan = plan_of([x, w, b], steps, [7, 8, 9, 10])
    for _ in range(3):
        a, c, values, indices = plan(x, w, b)
        m = (x + 1).view(10, 100)
        m = m @ m.t()
        torch.testing.assert_close(a, torch.addmm(m, m, w, beta=2), rtol=1e-4, atol=1e-2)
        torch.testing.assert_close(c, b @ b, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close((values, indices), tuple(a.topk(2)))


def test_streams(x):
    plan, streams = chain(5), [torch.cuda.Stream() for _ in range(3)]
    results = []
    torch.cuda.synchronize()
    for k, stream in enumerate(streams):
        with torch.cuda.stream(stream):
            torch.cuda._sleep(20_000_000)
            late = torch.full((N,), float(k), device="cuda:0")
            results.append(plan(late)[0])
    (now,) = plan(x)
    torch.cuda.current_stream().synchronize()
    torch.testing.assert_close(now, x + 5)
    for k, (stream, result) in enumerate(zip(streams, results)):
        stream.synchronize()
        assert result.unique().tolist() == [k + 5]


def test_a_call_waits_for_nothing(x):
    plan = chain(5)
    plan(x)
    torch.cuda.synchronize()
    torch.cuda._sleep(1_000_000_000)  # about half a second
    before = time.perf_counter()
    with_mode = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        (y,) = plan(x)
    finally:
        torch.cuda.set_sync_debug_mode(with_mode)
    assert time.perf_counter() - before < 0.05
    assert not torch.cuda.current_stream().query()
    torch.testing.assert_close(y, x + 5)


def test_under_capture_of_a_cuda_graph(x):
    plan = chain(5)
    plan(x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        (y,) = plan(x)
    x.fill_(3)
    graph.replay()
    torch.cuda.synchronize()
    assert y.unique().tolist() == [8]


def test_out_of_memory_is_torchs_own_exception(x):
    huge = 1 << 46
    plans = [
        plan_of([x], [Alloc(1, "float32", (huge,), (1,)), Launch(0, (0, 1), GRID, (N,))], [1]),
        plan_of([x], [Arena(huge), Slot(1, 0, *FLAT), Alloc(2, *FLAT), Launch(0, (0, 2), GRID, (N,))], [2]),
    ]
    torch.cuda.synchronize()
    for plan in plans:
        before = torch.cuda.memory_allocated()
        with pytest.raises(torch.OutOfMemoryError, match="CUDA out of memory"):
            plan(x)
        assert torch.cuda.memory_allocated() == before
    torch.testing.assert_close(chain(5)(x)[0], x + 5)


def test_many_calls_leak_nothing(x):
    plan = chain(5)
    for _ in range(10):
        plan(x)
    gc.collect()
    torch.cuda.synchronize()
    memory, references = torch.cuda.memory_allocated(), sys.getrefcount(x)
    reserved = torch.cuda.memory_reserved()
    for _ in range(20_000):
        plan(x)
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() == memory
    assert torch.cuda.memory_reserved() == reserved
    assert sys.getrefcount(x) == references


def test_an_index_out_of_range_is_reported_by_a_later_call():
    good, bad = torch.tensor(3, device="cuda:0"), torch.tensor(10, device="cuda:0")
    plan = plan_of([good], [Status(1), Launch(1, (0, 1), (1, 1, 1), (10,))], [0])
    plan(good)
    torch.cuda.synchronize()
    plan(bad)
    torch.cuda.synchronize()
    with pytest.raises(IndexError, match="reported asynchronously"):
        plan(good)
    plan(good)
    torch.cuda.synchronize()
    plan(good)


@pytest.mark.parametrize("shared", [4096, 48 << 10, 96 << 10])
def test_shared_memory(shared):
    limit = torch.cuda.get_device_properties(0).shared_memory_per_block_optin
    if shared > limit:
        pytest.skip(f"the device has {limit} bytes")
    x = torch.randn(256, device="cuda:0")
    plan = plan_of([x], [Alloc(1, "float32", (256,), (1,)), Launch(0, (0, 1), (1, 1, 1), (256, shared))], [1],
                   kernels=(CudaKernel(PTX, "reverse", 8, shared),))
    torch.testing.assert_close(plan(x)[0], x.flip(0))


def test_errors_of_building(x):
    steps = [Alloc(1, *FLAT), Launch(0, (0, 1), GRID, (N,))]
    with pytest.raises(RuntimeError, match="cannot load a compiled kernel"):
        plan_of([x], steps, [1], kernels=(CudaKernel(b"no code", "add_one", 4, 0),))
    with pytest.raises(RuntimeError, match="absent"):
        plan_of([x], steps, [1], kernels=(CudaKernel(PTX, "absent", 4, 0),))
    with pytest.raises(RuntimeError, match="4194304 bytes of shared memory"):
        plan_of([x], steps, [1], kernels=(CudaKernel(PTX, "add_one", 4, 1 << 22),))
    with pytest.raises(RuntimeError, match="cannot use cuda:63"):
        plan_of([x], steps, [1], device="cuda:63")
    torch.testing.assert_close(chain(2)(x)[0], x + 2)


def test_inputs_of_another_device_are_refused(x):
    with pytest.raises(ValueError, match="device"):
        chain(1)(x.cpu())
    mixed = plan_of([x.cpu(), x], [Alloc(2, *FLAT), Launch(0, (1, 2), GRID, (N,))], [0, 2])
    same, y = mixed(x.cpu(), x)
    assert same.device.type == "cpu"
    torch.testing.assert_close(y, x + 1)


def test_an_operator_that_raises_leaves_everything_as_it_was(x):
    plan = plan_of([x], [Extern("aten.cholesky_solve.default", (BufRef(0), BufRef(0)), (), (1,))], [1])
    with pytest.raises(RuntimeError):
        plan(x)
    assert torch.is_grad_enabled()
    assert torch.cuda.current_device() == 0


def test_inputs_written_in_place(x):
    want, version = x + 1, x._version
    assert plan_of([x], [Launch(0, (0, 0), GRID, (N,))], [0], mutated=(0,))(x)[0] is x
    torch.testing.assert_close(x, want)
    assert x._version > version


def test_threads_that_have_not_used_cuda():
    x = torch.arange(float(N), device="cuda:0")  # whose sums are exact
    plan, wrong = chain(5), []

    def work(k):
        stream = torch.cuda.Stream()
        for _ in range(50):
            with torch.cuda.stream(stream):
                y = torch.full((N,), float(k), device="cuda:0")
                if not torch.equal(plan(y)[0], y + 5):
                    wrong.append(k)

    def first_use():
        if not torch.equal(plan(x)[0], x + 5):
            wrong.append("first")

    torch.cuda.synchronize()
    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)] + [threading.Thread(target=first_use)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not wrong


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
def test_a_device_that_is_not_current():
    plans = [chain(5, f"cuda:{i}") for i in range(2)]
    inputs = [torch.randn(N, device=f"cuda:{i}") for i in range(2)]
    for current in (0, 1):
        with torch.cuda.device(current):
            for plan, x in zip(plans, inputs):
                torch.testing.assert_close(plan(x)[0], x + 5)
                assert torch.cuda.current_device() == current
            with pytest.raises(ValueError, match="device"):
                plans[0](inputs[1])
            assert torch.cuda.current_device() == current


def test_a_kernel_that_triton_compiled(x):
    from gpu_kernels import compile_axpy

    kernel = compile_axpy()
    spec = PlanSpec((input_spec(x), InputSpec("int")), (), (Alloc(2, *FLAT), Launch(0, (0, 2), (8, 1, 1), (N, 3))),
                    (OutputRef("buf", 2),), ("axpy",), device="cuda:0")
    torch.testing.assert_close(make_plan(spec, (kernel,))(x, 7)[0], 3 * x + 1)


def host_seconds(call):
    best = float("inf")
    for _ in range(30):  # short bursts: the queue must not fill up
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(10):
            call()
        best = min(best, (time.perf_counter() - start) / 10)
    return best


@pytest.mark.parametrize("n", [1, 5, 50])
def test_host_time_of_a_call(x, n):
    plan, out = chain(n), torch.empty_like(x)

    def eager():  # the same number of launches
        for _ in range(n):
            torch.add(x, 1, out=out)

    ours, theirs = host_seconds(lambda: plan(x)), host_seconds(eager)
    print(f"{n} kernels: {ours * 1e6:.1f} us on the host, eager {theirs * 1e6:.1f} us")
    assert ours < theirs * 0.9 + 5e-6  # what a call costs whatever is in it
