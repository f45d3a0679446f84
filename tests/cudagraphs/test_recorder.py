"""Recordings of compiled graphs on a fake device: equality with eager whatever happens to inputs and results."""

import gc
import threading
import warnings

import pytest
import torch
from torch import nn

import pyframe
from inductor.cudagraphs import device as devices
from inductor.cudagraphs import recorder as recorder_module
from pyframe import metrics
from tests.cudagraphs.fake_device import FakeDevice


@pytest.fixture
def fake(monkeypatch):
    monkeypatch.setattr(recorder_module, "MIN_CALLS", 1)
    device = devices.devices["cpu"] = FakeDevice()
    yield device
    del devices.devices["cpu"]


def fast(fn, **options):
    return pyframe.compile(fn, mode="reduce-overhead", options={"strict": True, **options})


def same(got, want):
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)


def stationary(n, *size):
    """`n` inputs, all in the same memory, as those of a loop are with torch's allocator for GPUs."""
    x = torch.empty(size)
    for k in range(n):
        yield x.copy_(torch.randn(size) + k)


def program(x):
    y = torch.softmax(x @ x.t(), -1)
    return y.sum(0), (y * 2).tanh()


@torch.no_grad()
def test_recorded_at_the_third_call_and_replayed_with_new_values(fake):
    f = fast(program)
    for x in stationary(6, 8, 8):
        same(f(x), program(x))
    assert (fake.captures, fake.replays) == (1, 4)
    assert metrics.counters["cudagraphs_recorded"] == 1


@torch.no_grad()
def test_inputs_elsewhere_are_copied(fake):
    f = fast(program)
    kept = []
    for _ in range(7):
        kept.append(torch.randn(8, 8))  # so that no two have the same address
        same(f(kept[-1]), program(kept[-1]))
    assert (fake.captures, fake.replays) == (1, 5)


@torch.no_grad()
def test_an_input_that_moves_later(fake):
    f = fast(program)
    kept = [torch.randn(8, 8) for _ in range(3)]
    for x in (kept[0],) * 4 + tuple(kept):
        same(f(x), program(x))
    assert fake.captures == 2 and fake.replays == 5


@torch.no_grad()
def test_results_that_are_kept_are_not_overwritten(fake):
    f = fast(program)
    kept = []
    for x in stationary(12, 8, 8):
        kept.append((f(x), program(x)))
        for got, want in kept:
            same(got, want)
    assert fake.replays == 10 and fake.captures == 3  # two with results given out, one with copies


@torch.no_grad()
@pytest.mark.parametrize("keep", ["view", "storage", "typed", "numpy", "detached", "list of views"])
def test_whatever_keeps_a_result_alive(fake, keep):
    f = fast(lambda x: x * 2 + 1)
    keeping = {
        "view": lambda y: y[1:], "storage": lambda y: y.untyped_storage(), "typed": lambda y: y.storage(),
        "numpy": lambda y: y.numpy(), "detached": lambda y: y.detach(), "list of views": lambda y: list(y.unbind()),
    }[keep]  # fmt: skip
    values = {
        "storage": lambda s: torch.tensor([], dtype=torch.float32).set_(s), "typed": lambda s: torch.tensor(list(s)),
        "numpy": torch.from_numpy, "list of views": torch.stack,
    }.get(keep, lambda y: y)  # fmt: skip
    kept = []
    for x in stationary(8, 5):
        y = f(x)
        kept.append((keeping(y), values(keeping(y)).clone()))
        del y
        for got, want in kept:
            assert torch.equal(values(got), want)
    assert fake.replays == 6


@torch.no_grad()
def test_a_result_that_is_the_next_input(fake):
    f = fast(lambda x: (x * 1.5).sin())
    x = want = torch.linspace(-1, 1, 7)
    for _ in range(12):
        x, want = f(x), (want * 1.5).sin()
        same(x, want)
    assert fake.replays > 4
    recorded = fake.captures
    for _ in range(12):
        x, want = f(x), (want * 1.5).sin()
        same(x, want)
    assert fake.captures == recorded


@torch.no_grad()
def test_results_that_share_memory_do_so_when_copied(fake):
    def views(x):
        y = x * 2
        return y, y[1:], x[2:], x

    f = fast(views)
    kept = []
    for x in stationary(8, 6):
        y, part, of_input, whole = f(x)
        assert whole is x and of_input._base is x
        y[1] = 100.0
        of_input[0] = -5.0
        assert part[0] == 100.0 and x[2] == -5.0
        kept.append((y, y.clone()))
        for got, want in kept:
            assert torch.equal(got, want)
    assert fake.replays == 6


@torch.no_grad()
def test_writing_to_a_result(fake):
    f = fast(lambda x: x + 1)
    for x in stationary(6, 5):
        y = f(x)
        same(y, x + 1)
        y.mul_(7)
        del y


@torch.no_grad()
def test_a_result_whose_storage_is_resized(fake):
    f = fast(lambda x: x + 1)
    for x in stationary(8, 5):
        y = f(x)
        same(y, x + 1)
        y.untyped_storage().resize_(0)
        del y
    assert fake.replays == 6


def bump(cache, x, at):
    cache.index_copy_(0, at, x)
    return cache.sum(1)


@torch.no_grad()
def test_inputs_written_in_place(fake):
    f = fast(bump)
    cache, want = torch.zeros(6, 4), torch.zeros(6, 4)
    for k in range(6):
        x, at = torch.randn(1, 4), torch.tensor([k])
        version = cache._version
        same(f(cache, x, at), bump(want, x, at))
        same(cache, want)
        assert cache._version > version
    assert fake.replays == 4


@torch.no_grad()
def test_written_inputs_that_move_are_copied_back(fake):
    def step(x, y):
        x.copy_(x + y)
        return x * 2

    f = fast(step)
    kept = []
    for _ in range(7):
        x, y = torch.randn(5), torch.randn(5)
        want = x.clone()
        result = step(want, y)
        version = x._version
        same(f(x, y), result)
        same(x, want)
        assert x._version == version + 1
        kept.append((x, y))
    assert fake.replays == 5
    # now the two share memory, which the recorded plan does not allow for
    base, replays = torch.randn(9), fake.replays
    want = base.clone()
    result = step(want[:5], want[2:7])
    same(f(base[:5], base[2:7]), result)
    same(base, want)
    assert fake.replays == replays


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(6, 12), nn.Linear(12, 6)
        self.register_buffer("scale", torch.tensor(2.0))

    def forward(self, x):
        return self.two(torch.nn.functional.gelu(self.one(x))) * self.scale


@torch.no_grad()
def test_parameters_that_change_or_are_replaced(fake):
    torch.manual_seed(0)
    net = Net()
    f = fast(net)
    for k in range(14):
        if k == 5:
            net.one.weight.add_(1)
        if k == 7:
            net.one.weight.data = torch.randn(12, 6)
        if k == 9:
            net.scale.fill_(3)
        if k == 10:
            net.scale = torch.tensor(-1.0)
        if k == 12:
            net.two.weight = nn.Parameter(torch.randn(6, 12))
        x = torch.randn(3, 6)
        same(f(x), net(x))
    assert fake.replays >= 9


def train(net, run, steps, accumulate=1, set_to_none=True):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    generator, losses = torch.Generator().manual_seed(3), []
    for _ in range(steps):
        optimizer.zero_grad(set_to_none=set_to_none)
        for _ in range(accumulate):
            loss = run(torch.randn(4, 6, generator=generator)).square().mean()
            loss.backward()
            losses.append(loss.item())
        optimizer.step()
    return losses, [p.grad.clone() for p in net.parameters()], [p.detach().clone() for p in net.parameters()]


@pytest.mark.parametrize("accumulate", [1, 3])
@pytest.mark.parametrize("set_to_none", [True, False])
def test_training(fake, accumulate, set_to_none):
    results = []
    for compiled in (False, True):
        torch.manual_seed(1)
        net = Net()
        results.append(train(net, fast(net) if compiled else net, 8, accumulate, set_to_none))
    same(results[1], results[0])
    assert fake.replays >= 2 * 8 * accumulate - 4 - 6


def test_several_forwards_before_their_backwards(fake):
    torch.manual_seed(1)
    net = Net()
    f = fast(net)
    for _ in range(5):
        inputs = [torch.randn(4, 6, requires_grad=True) for _ in range(4)]
        loss = sum((k + 1) * f(x).square().sum() for k, x in enumerate(inputs))
        got = torch.autograd.grad(loss, [*inputs, *net.parameters()])
        want = torch.autograd.grad(sum((k + 1) * net(x).square().sum() for k, x in enumerate(inputs)),
                                   [*inputs, *net.parameters()])
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)
    assert fake.replays > 10


def test_retained_graphs_and_gradients_of_gradients(fake):
    f = fast(lambda x, w: (x * w).sin() * w)
    w = torch.randn(5, requires_grad=True)
    for _ in range(6):
        x = torch.randn(5, requires_grad=True)
        y, want = f(x, w), (x * w).sin() * w
        for _ in range(2):
            same(torch.autograd.grad(y.sum(), [x, w], retain_graph=True),
                 torch.autograd.grad(want.sum(), [x, w], retain_graph=True))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        (h,) = torch.autograd.grad(want.sum(), x, create_graph=True)
        same(torch.autograd.grad(g.square().sum(), w), torch.autograd.grad(h.square().sum(), w))


@torch.no_grad()
def test_shapes_that_alternate_and_dynamic_sizes(fake):
    for dynamic in (None, True):
        pyframe.reset()
        f = fast(program) if dynamic is None else pyframe.compile(program, mode="reduce-overhead", dynamic=True)
        for _ in range(6):
            for n in (4, 7, 5):
                x = torch.randn(n, 3)
                same(f(x), program(x))
    assert fake.replays > 12


@torch.no_grad()
def test_expanded_and_transposed_inputs(fake):
    f = fast(lambda x, y: x * 2 + y)
    kept = []
    for _ in range(6):
        x, y = torch.randn(4, 1).expand(4, 3), torch.randn(3, 4).t()
        same(f(x, y), x * 2 + y)
        kept.append((x, y))
    assert fake.replays == 4


@torch.no_grad()
def test_breaks_and_nested_functions(fake):
    inner = fast(lambda x: x.cos() + 1)

    def outer(x):
        y = x.sin()
        pyframe.graph_break()
        return inner(y) * y

    f = pyframe.compile(outer, mode="reduce-overhead")
    kept = []
    for k in range(8):
        x = torch.randn(6)
        want = (x.sin().cos() + 1) * x.sin()
        kept.append((f(x), want))
        for got, expected in kept:
            same(got, expected)
    assert fake.replays > 8


def test_modes_of_gradients(fake):
    w = torch.randn(5, requires_grad=True)
    f = fast(lambda x: (x * w).sin())
    for _ in range(5):
        for mode in (torch.no_grad, torch.inference_mode, torch.enable_grad):
            with mode():
                x = torch.randn(5)
                y = f(x)
                same(y, (x * w).sin())
                assert y.is_inference() == (mode is torch.inference_mode)
                assert y.requires_grad == (mode is torch.enable_grad)
    assert fake.replays > 5


@torch.no_grad()
def test_random_numbers(fake):
    f = fast(lambda x: torch.nn.functional.dropout(x, 0.5) + torch.rand_like(x))
    x = torch.ones(50)
    torch.manual_seed(5)
    first = [f(x).clone() for _ in range(8)]
    assert all(not torch.equal(a, b) for a, b in zip(first, first[1:]))
    torch.manual_seed(5)
    assert all(torch.equal(f(x), y) for y in first)


@torch.no_grad()
def test_under_another_capture_or_a_mode_the_plan_runs(fake):
    from torch.utils._python_dispatch import TorchDispatchMode

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    f = fast(program)
    xs = list(stationary(4, 8, 8))
    for x in xs:
        f(x)
    replays, fake.user_captures = fake.replays, True
    same(f(xs[0]), program(xs[0]))
    fake.user_captures = False
    with fake.lock:  # another thread is at it
        same(f(xs[0]), program(xs[0]))
    with Mode():
        same(f(xs[0]), program(xs[0]))
    assert fake.replays == replays
    same(f(xs[0]), program(xs[0]))
    assert fake.replays == replays + 1


@torch.no_grad()
def test_threads(fake):
    f, wrong = fast(program), []

    def work(seed):
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for _ in range(60):
                x = torch.randn(6, 6, generator=generator)
                if not all(torch.allclose(a, b, atol=1e-5) for a, b in zip(f(x), program(x))):
                    wrong.append(seed)

    f(torch.randn(6, 6))
    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not wrong and fake.replays > 0


@torch.no_grad()
def test_an_exception_while_recording_is_a_warning_and_the_plan_runs(fake, monkeypatch):
    def fails(body, tensors):
        raise RuntimeError("operation not permitted when stream is capturing\nmore")

    monkeypatch.setattr(fake, "capture", fails)
    f = fast(program)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for x in stationary(6, 8, 8):
            same(f(x), program(x))
    messages = [str(w.message) for w in seen if "CUDA graphs" in str(w.message)]
    assert messages == [
        "inductor: a graph runs without CUDA graphs: operation not permitted when stream is capturing"
    ]


@torch.no_grad()
@pytest.mark.parametrize(
    ("fn", "args", "reason"),
    [
        (lambda x: torch.linalg.inv(x) * 2, (torch.eye(4),), "is not known to be capturable"),
        (lambda x: x[torch.randperm(4)] * 2, (torch.eye(4),), "is not known to be capturable"),
        (lambda x, m: torch.index_put(x, (m,), x[0, 0]), (torch.eye(4), torch.eye(4) > 0), "takes a mask"),
    ],
)
def test_refused_plans(fake, fn, args, reason):
    report = pyframe.explain(fn, mode="reduce-overhead")(*args)
    assert reason in str(report) and "without CUDA graphs" in str(report)
    f = fast(fn)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(4):
            f(*args)
    assert fake.captures == 0


@torch.no_grad()
def test_the_number_of_recordings_is_bounded(fake, monkeypatch):
    monkeypatch.setattr(recorder_module, "MAX_RECORDINGS", 4)
    net = nn.Linear(4, 4)
    f = fast(net)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for _ in range(12):
            net.weight.data = torch.randn(4, 4)
            x = torch.randn(2, 4)
            same(f(x), net(x))
    assert fake.captures <= 4
    assert sum("change too often" in str(w.message) for w in seen) <= 1


@torch.no_grad()
def test_nothing_is_kept_alive(fake):
    import weakref

    f = fast(program)
    for x in stationary(5, 8, 8):
        f(x)
    x = torch.randn(8, 8)
    y = f(x)[1]
    dead = weakref.ref(x), weakref.ref(y)
    del x, y
    assert [each() for each in dead] == [None, None]
    memories = len(fake.memories)
    assert memories
    del f
    pyframe.reset()
    gc.collect()
    assert len(fake.memories) == 0


def test_off_by_default_and_through_torch_compile(fake):
    x = torch.randn(8, 8)
    with torch.no_grad():
        default, off = pyframe.compile(program), fast(program, **{"triton.cudagraphs": False})
        torch._dynamo.reset()
        on = torch.compile(program, backend="pyframe_inductor", mode="reduce-overhead")
        for _ in range(4):
            same(default(x), program(x))
            same(off(x), program(x))
        assert fake.captures == 0
        for _ in range(4):
            same(on(x), program(x))
        assert fake.replays == 2


@torch.no_grad()
def test_a_plan_of_few_kernels_is_not_recorded(fake, monkeypatch):
    monkeypatch.setattr(recorder_module, "MIN_CALLS", 4)
    short, long = fast(lambda x: x * 2 + 1), fast(lambda x: (x @ x @ x @ x @ x).sin())
    for x in stationary(5, 8, 8):
        same(short(x), x * 2 + 1)
        long(x)
    assert (fake.captures, fake.replays) == (1, 3)


def test_the_mark_of_a_step_is_accepted_in_a_graph():
    def step(x):
        torch.compiler.cudagraph_mark_step_begin()
        return x.sin() + 1

    x = torch.randn(4)
    same(pyframe.compile(step, fullgraph=True, mode="reduce-overhead")(x), x.sin() + 1)
