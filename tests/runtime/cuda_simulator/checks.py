"""CUDA plans on the simulated driver. Run by test_cuda_plan_simulated.py in a process of its own."""

import ctypes
import gc
import os
import sys
import threading

import pytest
import torch

from inductor.runtime.cuda import CudaKernel
from inductor.runtime.plan import input_spec, make_plan
from inductor.runtime.plan_spec import (
    Alloc,
    Arena,
    BufRef,
    Counters,
    Extern,
    Free,
    InputSpec,
    KernelCall,
    Launch,
    OutputRef,
    PlanSpec,
    Slot,
    Status,
    View,
)

sim = ctypes.CDLL(os.environ["PYFRAME_CUDA_DRIVER"])
sim.sim_context.restype = sim.sim_current.restype = ctypes.c_void_p
NAMES = ("add_one", "scale_add", "check_index", "scale_by")
KERNELS = tuple(CudaKernel(b"code", name, 4, 128) for name in NAMES)
N = 4
FLAT = ("float32", (N,), (1,))


class Record(ctypes.Structure):
    _fields_ = [("kernel", ctypes.c_char_p), ("grid", ctypes.c_uint32 * 3), ("block", ctypes.c_uint32 * 3),
                ("shared", ctypes.c_uint32), ("stream", ctypes.c_void_p), ("context", ctypes.c_void_p),
                ("scratch", ctypes.c_void_p * 2), ("early", ctypes.c_int32)]


def last():
    return Record.in_dll(sim, "sim_last")


def counter(name):
    return ctypes.c_int64.in_dll(sim, "sim_" + name).value


def fail_next(function, status):
    ctypes.c_int32.in_dll(sim, "sim_failure").value = status
    ctypes.c_char_p.in_dll(sim, "sim_failing").value = function


def spec_of(inputs, steps, outputs, names=NAMES, device="cuda:0", **more):
    specs = tuple(i if isinstance(i, InputSpec) else InputSpec("tensor", *FLAT) for i in inputs)
    return PlanSpec(specs, (), tuple(steps), tuple(OutputRef("buf", o) for o in outputs), names, device=device, **more)


def add_one_plan(steps=None, kernels=KERNELS, device="cuda:0"):
    steps = steps or [Alloc(1, *FLAT), Launch(0, (0, 1), (3, 2, 1), (N,))]
    return make_plan(spec_of([None], steps, [1], device=device), kernels)


def test_a_launch_gets_its_arguments():
    x = torch.randn(N)
    plan = add_one_plan()
    launches = counter("launches")
    (y,) = plan(x)
    torch.testing.assert_close(y, x + 1)
    assert counter("launches") == launches + 1
    record = last()
    assert record.kernel == b"add_one"
    assert tuple(record.grid) == (3, 2, 1)
    assert tuple(record.block) == (128, 1, 1)
    assert record.shared == 128
    assert record.stream == 0x51
    assert tuple(record.scratch) == (None, None)
    assert record.context == sim.sim_context(0)


def test_counters_belong_to_a_stream_and_to_a_graph():
    """The second kernel adds one to them, so a result says how many calls had the same ones before."""
    steps = [Counters(1), Alloc(2, *FLAT), Launch(0, (1, 2), (1, 1, 1), (N,)), Launch(0, (1, 1), (1, 1, 1), (N,))]
    plan, other = (make_plan(spec_of([None], steps, [2]), KERNELS) for _ in range(2))
    x, stream = torch.zeros(N), ctypes.c_void_p.in_dll(sim, "sim_stream")
    capturing = ctypes.c_int32.in_dll(sim, "sim_capturing")
    first = stream.value
    try:
        assert [plan(x)[0][0].item() for _ in range(3)] == [1, 2, 3]
        assert other(x)[0][0].item() == 1
        stream.value = 0x52
        assert [plan(x)[0][0].item() for _ in range(2)] == [1, 2]
        stream.value = first
        assert plan(x)[0][0].item() == 4
        capturing.value = 1
        assert [plan(x)[0][0].item() for _ in range(2)] == [1, 1]
        capturing.value = 0
        assert plan(x)[0][0].item() == 5
        stream.value = 2  # the default stream of each thread
        assert [plan(x)[0][0].item() for _ in range(2)] == [1, 1]
    finally:
        capturing.value, stream.value = 0, first


def test_each_step_has_its_own_counters():
    grid = 1, 1, 1
    steps = [Counters(1), Counters(2, 2 * N), Alloc(3, *FLAT), Alloc(4, *FLAT), Launch(0, (1, 3), grid, (N,)),
             Launch(0, (2, 4), grid, (N,)), Launch(0, (1, 1), grid, (N,))]  # fmt: skip
    plan, x = make_plan(spec_of([None], steps, [3, 4]), KERNELS), torch.zeros(N)
    assert [[out[0].item() for out in plan(x)] for _ in range(3)] == [[1, 1], [2, 1], [3, 1]]


def test_kernels_take_numbers_that_the_cpu_computes():
    """A kernel of the CPU writes scratch memory of the host; the launch reads it, and an element of an input."""
    double = ctypes.CFUNCTYPE(None, ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p)(
        lambda bufs, ints: ctypes.memmove(bufs[1], ctypes.byref(ctypes.c_float(
            2 * ctypes.cast(bufs[0], ctypes.POINTER(ctypes.c_float))[0])), 4)
    )  # fmt: skip
    steps = [
        Arena(64), Arena(128, on_host=True),
        Slot(3, 64, "float32", (), (), on_host=True),
        KernelCall(4, (1, 3)),
        Alloc(4, *FLAT),
        Launch(3, (0, 4, 3, 2), (1, 1, 1), (N,), ((2, 0), (3, 8))),
        Alloc(5, "float32", (), (), "cpu"),
        KernelCall(4, (3, 5)),
    ]  # fmt: skip
    inputs = [None, InputSpec("tensor", "float32", (), (), "cpu"), InputSpec("tensor", "float64", (2,), (1,), "cpu")]
    kernels = (*KERNELS, ctypes.cast(double, ctypes.c_void_p).value)
    plan = make_plan(spec_of(inputs, steps, [4, 5, 3], (*NAMES, "k0")), kernels)
    x = torch.randn(N)
    for k in range(3):
        number, pair = torch.tensor(1.5 + k), torch.tensor([9.0, k / 4], dtype=torch.float64)
        a, b, c = plan(x, number, pair)
        torch.testing.assert_close(a, x * 2 * number + pair[1].float())
        torch.testing.assert_close([b, c], [4 * number, 2 * number])
    with pytest.raises(ValueError, match="no argument"):
        make_plan(spec_of(inputs, [Alloc(3, *FLAT), Launch(0, (0, 3), (1, 1, 1), (N,), ((2, 0),))], [3]), KERNELS)


def test_the_current_device_is_restored():
    x = torch.randn(N)
    plan = add_one_plan(device="cuda:1")
    assert sim.sim_current() is None
    plan(x)
    assert last().context == sim.sim_context(1)
    assert sim.sim_current() is None
    sim.cuCtxSetCurrent(ctypes.c_void_p(sim.sim_context(0)))
    try:
        plan(x)
        assert sim.sim_current() == sim.sim_context(0)
        with pytest.raises(ValueError):
            plan(x.double())
        assert sim.sim_current() == sim.sim_context(0)
        sets = counter("context_sets")
        add_one_plan()(x)
        assert counter("context_sets") == sets  # already current: nothing to do
    finally:
        sim.cuCtxSetCurrent(None)


def test_arena_views_externs_and_frees_between_launches():
    x, y = torch.randn(N), torch.randn(N)
    steps = [
        Arena(512),
        Slot(2, 0, *FLAT),
        Launch(0, (0, 2), (1, 1, 1), (N,)),
        Slot(3, 64, *FLAT),
        Launch(1, (2, 1, 3), (1, 1, 1), (N, -3)),
        Free(2),
        View(4, 3, (2,), (1,), 2),
        Extern("aten.relu.default", (BufRef(4),), (), (5,)),
        Alloc(6, "float32", (2,), (1,)),
        Launch(0, (5, 6), (1, 1, 1), (2,)),
        Free(5),
        Alloc(7, "float32", (2, 2), (2, 1)),
        View(8, 6, (2, 1), (1, 1)),
        View(9, 6, (1, 2), (2, 1)),
        Extern("aten.mm.out", (BufRef(8), BufRef(9)), (), (7,), ("out",)),
    ]
    plan = make_plan(spec_of([None, None], steps, [6, 7]), KERNELS)
    for _ in range(3):
        a, b = plan(x, y)
        want = (-3 * (x + 1) + y)[2:].relu() + 1
        torch.testing.assert_close(a, want)
        torch.testing.assert_close(b, want[:, None] * want)
    assert plan.arena_bytes == 512


def test_modules_are_loaded_once_per_code_and_device():
    loads = counter("loads")
    fresh = tuple(CudaKernel(b"other code", name, 4, 0) for name in NAMES)
    for _ in range(3):
        add_one_plan(kernels=fresh)
    assert counter("loads") == loads + 1
    for _ in range(2):
        add_one_plan(kernels=tuple(CudaKernel(bytes(bytearray(b"other code")), name, 4, 0) for name in NAMES))
        add_one_plan(kernels=fresh, device="cuda:1")
    assert counter("loads") == loads + 2
    assert counter("retains") == 2
    assert counter("unloads") == 0


def test_an_index_out_of_range_is_reported_by_the_next_call():
    steps = [Status(1), Launch(2, (0, 1), (1, 1, 1), (10,))]
    plan = make_plan(spec_of([InputSpec("tensor", "int64", (), ())], steps, [0]), KERNELS)
    other = make_plan(spec_of([InputSpec("tensor", "int64", (), ())], steps, [0]), KERNELS)
    plan(torch.tensor(3))
    plan(torch.tensor(10))  # found out after the call
    other(torch.tensor(3))
    launches = counter("launches")
    with pytest.raises(IndexError, match=r"index out of range in a compiled graph \(reported asynchronously\)"):
        plan(torch.tensor(3))
    assert counter("launches") == launches
    plan(torch.tensor(3))
    for _ in range(600):  # more words than a page holds
        last_plan = make_plan(spec_of([InputSpec("tensor", "int64", (), ())], steps, [0]), KERNELS)
    last_plan(torch.tensor(3))
    last_plan(torch.tensor(3))
    assert counter("host_allocs") == 2


def test_an_empty_grid_launches_nothing():
    launches = counter("launches")
    add_one_plan([Alloc(1, *FLAT), Launch(0, (0, 1), (0, 1, 1), (0,))])(torch.randn(N))
    assert counter("launches") == launches


def test_much_shared_memory_is_asked_for():
    x = torch.randn(N)
    add_one_plan(kernels=(CudaKernel(b"code", "add_one", 8, 100 << 10), *KERNELS[1:]))(x)
    assert ctypes.c_int32.in_dll(sim, "sim_set_attribute").value == 100 << 10
    assert last().shared == 100 << 10
    add_one_plan(kernels=(CudaKernel(b"code", "add_one", 8, 60 << 10), *KERNELS[1:]))(x)
    assert ctypes.c_int32.in_dll(sim, "sim_set_attribute").value == 100 << 10  # not lowered
    with pytest.raises(RuntimeError, match="add_one with 1048576 bytes of shared memory"):
        add_one_plan(kernels=(CudaKernel(b"code", "add_one", 8, 1 << 20), *KERNELS[1:]))


def test_a_kernel_that_waits_itself_may_start_early():
    x = torch.randn(N)
    add_one_plan()(x)
    assert not last().early
    kernel = CudaKernel(b"code", "add_one", 8, 256, waits=True)
    (got,) = add_one_plan(kernels=(kernel, *KERNELS[1:]))(x)
    torch.testing.assert_close(got, x + 1)
    # the first kernel of a run is behind all that came before, so that others may read inputs at any time
    assert (last().early, last().shared, list(last().block)) == (0, 256, [256, 1, 1])
    one, nothing = (1, 1, 1), Launch(0, (0, 1), (0, 1, 1), (N,))
    steps = [Alloc(1, *FLAT), Alloc(2, *FLAT), nothing, Launch(0, (0, 1), one, (N,)), Launch(0, (1, 2), one, (N,))]
    for count, early in ((4, 0), (5, 1)):
        plan = make_plan(spec_of([None], steps[:count], [1]), (kernel, *KERNELS[1:]))
        for _ in range(2):
            torch.testing.assert_close(plan(x)[0], x + 1)
            assert last().early == early


def test_a_plan_that_cannot_be_built():
    with pytest.raises(RuntimeError, match="kernel image is invalid"):
        add_one_plan(kernels=(CudaKernel(b"bad code", "add_one", 4, 0), *KERNELS[1:]))
    with pytest.raises(RuntimeError, match="nothing .*: named symbol not found"):
        add_one_plan(kernels=(CudaKernel(b"code", "nothing", 4, 0), *KERNELS[1:]))
    with pytest.raises(RuntimeError, match="cannot use cuda:7: invalid device ordinal"):
        add_one_plan(device="cuda:7")
    with pytest.raises(ValueError, match="threads"):
        add_one_plan(kernels=(CudaKernel(b"code", "add_one", 64, 0), *KERNELS[1:]))
    with pytest.raises(ValueError, match="grid"):
        add_one_plan([Alloc(1, *FLAT), Launch(0, (0, 1), (1, 1 << 17, 1), (N,))])
    with pytest.raises(ValueError, match="32-bit"):
        add_one_plan([Alloc(1, *FLAT), Launch(0, (0, 1), (1, 1, 1), (1 << 40,))])
    with pytest.raises(ValueError, match="kernel of the CPU"):
        add_one_plan([Alloc(1, *FLAT), KernelCall(0, (0, 1), (N,))])
    with pytest.raises(ValueError, match="a launch needs a CUDA plan"):
        add_one_plan(device="cpu")
    for device in ("cuda", "cuda:x", "cpu:0", "tpu"):
        with pytest.raises(ValueError, match="'cuda:N'"):
            add_one_plan(device=device)


def test_a_launch_that_fails_names_the_kernel():
    plan, x = add_one_plan(), torch.randn(N)
    fail_next(b"cuLaunchKernel", 719)
    with pytest.raises(RuntimeError, match=r"cannot launch the kernel add_one: some other failure \(CUDA error 719\)"):
        plan(x)
    assert sim.sim_current() is None
    torch.testing.assert_close(plan(x)[0], x + 1)


def test_torchs_own_exception_for_memory_that_there_is_not():
    huge = 1 << 60
    with pytest.raises(RuntimeError, match="memory"):
        add_one_plan([Alloc(1, "float32", (huge,), (1,))])(torch.randn(N))
    with pytest.raises(RuntimeError, match="memory"):
        add_one_plan([Arena(huge), Slot(1, 0, *FLAT)])(torch.randn(N))
    assert sim.sim_current() is None


def test_inputs_of_a_device_of_their_own():
    plan = make_plan(spec_of([InputSpec("tensor", *FLAT, "cpu")], [], [0]), KERNELS)
    x = torch.randn(N)
    assert plan(x)[0] is x
    with pytest.raises(ValueError, match="device"):
        plan(torch.empty(N, device="meta"))
    assert input_spec(x).device == "cpu"


def test_mutated_inputs():
    x = torch.randn(N)
    want, version = x + 1, x._version
    plan = make_plan(spec_of([None], [Launch(0, (0, 0), (1, 1, 1), (N,))], [0], mutated=(0,)), KERNELS)
    assert plan(x)[0] is x
    torch.testing.assert_close(x, want)
    assert x._version > version


def test_many_parameters():
    steps = [Alloc(1, *FLAT), Launch(0, (0, 1), (1, 1, 1), (N, *range(200)))]
    x = torch.randn(N)
    torch.testing.assert_close(add_one_plan(steps)(x)[0], x + 1)


def test_calls_do_not_leak():
    steps = [Arena(64), Slot(2, 0, *FLAT), Launch(0, (0, 2), (1, 1, 1), (N,)), Alloc(1, *FLAT),
             Launch(0, (2, 1), (1, 1, 1), (N,))]
    plan, x = add_one_plan(steps), torch.randn(N)
    plan(x)
    gc.collect()
    before, count = sys.getrefcount(x), sum(type(o) is torch.Tensor for o in gc.get_objects())
    for _ in range(500):
        plan(x)
    assert sys.getrefcount(x) == before
    assert sum(type(o) is torch.Tensor for o in gc.get_objects()) == count


def test_threads():
    plan, wrong = add_one_plan([Alloc(1, *FLAT), Launch(0, (0, 1), (1, 1, 1), (N,))]), []

    def work(k):
        x = torch.full((N,), float(k))
        for _ in range(500):
            if not torch.equal(plan(x)[0], x + 1):
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not wrong
