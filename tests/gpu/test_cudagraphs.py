"""`mode="reduce-overhead"` on a GPU: recorded graphs compute what eager computes, whatever happens to their inputs and
results between calls."""

import contextlib
import threading
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import inductor
import pyframe
from inductor.cudagraphs import recorder
from inductor.cudagraphs.device import device_of
from pyframe import metrics

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")

if torch.cuda.is_available():
    torch.backends.cuda.matmul.allow_tf32 = False


@pytest.fixture(autouse=True)
def short_plans_too(monkeypatch):
    monkeypatch.setattr(recorder, "MIN_CALLS", 1)


def cuda(*size, **options):
    return torch.randn(size, device="cuda", **options)


def fast(fn, **options):
    return pyframe.compile(fn, mode="reduce-overhead", options={"strict": True, **options})


def same(got, want, tolerance=1e-4):
    torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance)


@contextlib.contextmanager
def replays(at_least=1):
    """Counts replays, and fails if there are fewer."""
    counted, replay = [0], torch.cuda.CUDAGraph.replay

    def counting(self):
        counted[0] += 1
        return replay(self)

    torch.cuda.CUDAGraph.replay = counting
    try:
        yield counted
    finally:
        torch.cuda.CUDAGraph.replay = replay
    assert counted[0] >= at_least, f"{counted[0]} replays, {metrics.counters['cudagraphs_recorded']} recorded"


def program(x):
    y = torch.softmax(x @ x.t(), -1)
    return y.sum(0), (y * 2).tanh() @ x


class Net(nn.Module):
    def __init__(self, dropout=0.0):
        super().__init__()
        self.one, self.two, self.norm = nn.Linear(64, 128), nn.Linear(128, 64), nn.LayerNorm(64)
        self.dropout = dropout
        self.register_buffer("scale", torch.tensor(2.0))

    def forward(self, x):
        hidden = F.dropout(F.gelu(self.one(x)), self.dropout, self.training)
        return self.norm(self.two(hidden) + x) * self.scale


class Attention(nn.Module):
    def __init__(self, dropout=0.0):
        super().__init__()
        self.qkv, self.out, self.dropout = nn.Linear(64, 192), nn.Linear(64, 64), dropout

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (each.view(b, t, 4, 16).transpose(1, 2) for each in self.qkv(x).split(c, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=self.dropout)
        return x + self.out(y.transpose(1, 2).reshape(b, t, c))


class Conv(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.norm, self.two = nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.Conv2d(16, 8, 3, stride=2)

    def forward(self, x):
        return self.two(F.relu(self.norm(self.one(x)))).mean((2, 3))


@torch.no_grad()
@pytest.mark.parametrize("moving", [False, True])
def test_new_inputs_in_each_call(moving):
    f, kept, at = fast(program), [], torch.empty(32, 32, device="cuda")
    with replays(6):
        for _ in range(8):
            x = cuda(32, 32) if moving else at.copy_(cuda(32, 32))
            kept.append(x)
            same(f(x), program(x))


@torch.no_grad()
def test_results_kept_over_later_calls():
    f, kept = fast(program), []
    with replays(8):
        for _ in range(10):
            x = cuda(32, 32)
            kept.append((f(x), program(x)))
            for got, want in kept:
                same(got, want)


@torch.no_grad()
def test_a_view_and_a_storage_keep_a_result():
    f, kept = fast(lambda x: x * 2 + 1), []
    with replays(4):
        for k in range(10):
            x = cuda(64)
            y = f(x)
            kept.append((y[3:] if k % 2 else y.untyped_storage(), (x * 2 + 1)[3 * (k % 2) :]))
            del y
            for got, want in kept:
                value = got if isinstance(got, torch.Tensor) else torch.empty(0, device="cuda").set_(got)
                assert torch.equal(value, want)


@torch.no_grad()
def test_a_result_is_the_next_input():
    f = fast(lambda x: (x * 1.5).sin())
    x = want = cuda(1000)
    with replays(8):
        for _ in range(16):
            x, want = f(x), (want * 1.5).sin()
            same(x, want)


@torch.no_grad()
def test_a_cache_that_is_written_in_place():
    def step(cache, x, at):
        cache.index_copy_(0, at, x * 2)
        return cache.sum(0)

    f, cache, want = fast(step), torch.zeros(12, 64, device="cuda"), torch.zeros(12, 64, device="cuda")
    with replays(8):
        for k in range(12):
            x, at = cuda(1, 64), torch.tensor([k], device="cuda")
            version = cache._version
            same(f(cache, x, at), step(want, x, at))
            same(cache, want)
            assert cache._version > version


@torch.no_grad()
def test_a_written_input_that_moves():
    def step(x, y):
        x.copy_(x + y)
        return x * 2

    f, kept = fast(step), []
    with replays(6):
        for _ in range(8):
            x, y = cuda(100), cuda(100)
            want = x.clone()
            result = step(want, y)
            same(f(x, y), result)
            same(x, want)
            kept.append((x, y))
    base = cuda(120)
    want = base.clone()
    same(f(base[:100], base[8:108]), step(want[:100], want[8:108]))
    same(base, want)


@torch.no_grad()
def test_parameters_changed_and_replaced():
    net = Net().cuda().eval()
    f = fast(net)
    with replays(8):
        for k in range(16):
            if k == 5:
                net.one.weight.add_(1)
            if k == 7:
                net.one.weight.data = cuda(128, 64)
            if k == 9:
                net.scale.fill_(3)
            if k == 11:
                net.two.weight = nn.Parameter(cuda(64, 128))
            if k == 13:
                net.load_state_dict(Net().state_dict())
            x = cuda(16, 64)
            same(f(x), net(x))


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_to_another_dtype(dtype):
    net = Net().cuda().eval()
    f = fast(net)
    for _ in range(5):
        x = cuda(16, 64)
        same(f(x), net(x))
    net.to(dtype)
    for _ in range(5):
        x = cuda(16, 64, dtype=dtype)
        same(f(x), net(x), 5e-2)


def train(net, run, steps, inputs, accumulate=1, set_to_none=True, fused=False):
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, fused=fused)
    losses = []
    for step in range(steps):
        optimizer.zero_grad(set_to_none=set_to_none)
        for part in range(accumulate):
            loss = run(inputs[(step * accumulate + part) % len(inputs)]).square().mean()
            loss.backward()
            losses.append(loss.detach())
        optimizer.step()
    return torch.stack(losses), [p.grad.clone() for p in net.parameters()]


@pytest.mark.parametrize("set_to_none", [True, False])
@pytest.mark.parametrize("accumulate", [1, 3])
@pytest.mark.parametrize("make", [Net, Attention, Conv])
def test_training(make, accumulate, set_to_none):
    size = {Net: (16, 64), Attention: (2, 24, 64), Conv: (4, 3, 16, 16)}[make]
    inputs = [cuda(*size) for _ in range(5)]
    results = []
    for compiled in (False, True):
        torch.manual_seed(1)
        net = make().cuda()
        with replays(4 * accumulate if compiled else 0):
            results.append(train(net, fast(net) if compiled else net, 6, inputs, accumulate, set_to_none))
    same(results[1], results[0], 2e-3)


def test_attention_without_float32():
    """The attention kernels that save seeds of no meaning for their backward."""
    net = Attention().cuda().bfloat16()
    f = fast(net)
    with replays(6):
        for _ in range(6):
            x = cuda(2, 24, 64, dtype=torch.bfloat16, requires_grad=True)
            got = torch.autograd.grad(f(x).float().square().sum(), [x, *net.parameters()])
            want = torch.autograd.grad(net(x).float().square().sum(), [x, *net.parameters()])
            for a, b in zip(got, want):
                assert (a - b).float().norm() <= 3e-2 * b.float().norm()


def test_several_forwards_before_their_backwards():
    net = Net().cuda()
    f = fast(net)
    with replays(10):
        for _ in range(5):
            inputs = [cuda(16, 64, requires_grad=True) for _ in range(4)]
            found = [
                torch.autograd.grad(sum((k + 1) * run(x).square().sum() for k, x in enumerate(inputs)),
                                    [*inputs, *net.parameters()])
                for run in (f, net)
            ]  # fmt: skip
            same(*found, 1e-3)


@torch.no_grad()
def test_random_numbers_advance_and_come_back_with_the_seed():
    net = Net(0.5).cuda()
    default, f, x = pyframe.compile(net), fast(net), cuda(16, 64)
    for _ in range(4):
        f(x)
    torch.manual_seed(5)
    with replays(5):
        first = [f(x).clone() for _ in range(5)]
    assert all(not torch.equal(a, b) for a, b in zip(first, first[1:]))
    torch.manual_seed(5)
    assert all(torch.equal(f(x), y) for y in first)
    torch.manual_seed(5)
    for y in first:  # the numbers of the default mode
        same(default(x), y)
    state = torch.cuda.get_rng_state()
    y = f(x).clone()
    torch.cuda.set_rng_state(state)
    assert torch.equal(f(x), y)


def test_dropout_has_the_same_mask_in_the_backward():
    f = fast(lambda x: F.dropout(x, 0.5))
    with replays(4):
        for _ in range(6):
            x = torch.rand(5000, device="cuda").add_(1).requires_grad_()
            y = f(x)
            torch.rand(7, device="cuda")
            (grad,) = torch.autograd.grad(y.sum(), x)
            assert torch.equal(grad != 0, y != 0)


def test_training_with_dropout_in_attention():
    net = Attention(0.3).cuda().bfloat16()
    f = fast(net)
    outputs = []
    for _ in range(6):
        x = torch.ones(2, 24, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        y = f(x)
        y.float().square().sum().backward()
        assert x.grad.isfinite().all()
        outputs.append(y.detach().clone())
    assert all(not torch.equal(a, b) for a, b in zip(outputs, outputs[1:]))


@torch.no_grad()
@pytest.mark.parametrize("dynamic", [None, True])
def test_alternating_shapes(dynamic):
    f = pyframe.compile(program, mode="reduce-overhead", dynamic=dynamic)
    with replays(10):
        for _ in range(7):
            for n in (16, 33, 24):
                x = cuda(n, 32)
                same(f(x), program(x))


@torch.no_grad()
def test_graph_breaks_and_nested_functions():
    inner = fast(lambda x: x.cos() + 1)

    def outer(x):
        y = x.sin()
        pyframe.graph_break()
        return inner(y) * y

    f, kept = pyframe.compile(outer, mode="reduce-overhead"), []
    with replays(10):
        for _ in range(8):
            x = cuda(500)
            kept.append((f(x), (x.sin().cos() + 1) * x.sin()))
            for got, want in kept:
                same(got, want)


def test_modes_of_gradients():
    w = cuda(50, requires_grad=True)
    f = fast(lambda x: (x * w).sin())
    with replays(6):
        for _ in range(6):
            for mode in (torch.no_grad, torch.inference_mode, torch.enable_grad):
                with mode():
                    x = cuda(50)
                    y = f(x)
                    same(y, (x * w).sin())
                    assert y.is_inference() == (mode is torch.inference_mode)
                    assert y.requires_grad == (mode is torch.enable_grad)


def test_autocast():
    net = Net().cuda()
    f = fast(net)
    with replays(6):
        for _ in range(6):
            x = cuda(16, 64)
            with torch.autocast("cuda", torch.bfloat16):
                y, want = f(x), net(x)
            same(y, want, 5e-2)
            got = torch.autograd.grad(y.float().square().sum(), list(net.parameters()))
            expected = torch.autograd.grad(want.float().square().sum(), list(net.parameters()))
            for a, b in zip(got, expected):
                assert (a - b).norm() <= 5e-2 * b.norm() + 1e-4


@torch.no_grad()
def test_streams():
    f = fast(program)
    streams = [torch.cuda.default_stream(), torch.cuda.Stream(), torch.cuda.Stream()]
    kept = []
    with replays(15):
        for k in range(18):
            stream = streams[k % 3]
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                x = cuda(256, 256)
                kept.append((f(x), program(x)))
            torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    for got, want in kept:
        same(got, want)


@torch.no_grad()
def test_work_on_one_stream_is_done_before_another_overwrites_it():
    f = fast(lambda x: x * 2 + 1)
    x = torch.empty(1 << 22, device="cuda")
    one, two = torch.cuda.Stream(), torch.cuda.Stream()
    sums = []
    with replays(20):
        for k in range(24):
            with torch.cuda.stream((one, two)[k % 2]):
                mine = torch.full_like(x, float(k))
                y = f(mine)
                for _ in range(4):
                    y = y + 1  # queued behind the replay, on the same stream
                sums.append(y)
                mine.record_stream(torch.cuda.current_stream())
    torch.cuda.synchronize()
    for k, y in enumerate(sums):
        assert torch.equal(y, torch.full_like(x, 2.0 * k + 5))


def test_threads():
    f, wrong = fast(program), []

    def work(seed):
        generator = torch.Generator("cuda").manual_seed(seed)
        with torch.no_grad():
            for _ in range(50):
                x = torch.randn(32, 32, device="cuda", generator=generator)
                if not all(torch.allclose(a, b, atol=1e-4) for a, b in zip(f(x), program(x))):
                    wrong.append(seed)

    with torch.no_grad():
        f(cuda(32, 32))
    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not wrong


@torch.no_grad()
def test_under_the_users_own_capture():
    f, x = fast(program), cuda(32, 32)
    for _ in range(5):
        f(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = f(x)
    for _ in range(3):
        x.copy_(cuda(32, 32))
        graph.replay()
        same(y, program(x))
        same(f(x), program(x))


@torch.no_grad()
def test_an_index_out_of_range_is_reported():
    f = fast(lambda x, i: x[i] * 2)
    x, i = cuda(10, 4), torch.tensor([1, 2], device="cuda")
    for _ in range(5):
        same(f(x, i), x[i] * 2)
    f(x, torch.tensor([1, 99], device="cuda"))
    torch.cuda.synchronize()
    with pytest.raises(IndexError):
        f(x, i)
    same(f(x, i), x[i] * 2)


@torch.no_grad()
def test_an_exception_between_calls():
    f, x = fast(program), cuda(32, 32)
    for k in range(8):
        if k in (1, 4, 6):
            with pytest.raises((RuntimeError, ValueError)):
                f(cuda(32, 3, 2))
        same(f(x), program(x))


@torch.no_grad()
@pytest.mark.parametrize(
    "fn",
    [
        lambda x: torch.linalg.inv(x @ x.t() + torch.eye(8, device="cuda")) * 2,
        lambda x: x[torch.randperm(8, device="cuda")].sum(0) * 2,
        lambda x: x[x > 0].sum() * 2,
        lambda x: x * x.sum().item(),
        lambda x: x * torch.ones(8).cuda(),
    ],
)
def test_what_cannot_be_recorded_runs_as_usual(fn):
    f = pyframe.compile(fn, mode="reduce-overhead")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(6):
            x = cuda(8, 8).abs()
            same(f(x), fn(x), 1e-2)


@torch.no_grad()
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_several_devices():
    f = fast(program)
    with replays(8):
        for _ in range(8):
            for device in ("cuda:0", "cuda:1"):
                x = torch.randn(32, 32, device=device)
                same(f(x), program(x))


@torch.no_grad()
def test_memory_is_given_back():
    f, x = fast(program), cuda(512, 512)
    for _ in range(5):
        f(x)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    for _ in range(50):
        f(x)
    assert torch.cuda.memory_allocated() <= before + (4 << 20)


@torch.no_grad()
def test_host_time_does_not_grow_with_kernels():
    """Replays launch one graph, however many kernels there are."""

    def many(x):
        for _ in range(40):
            x = torch.softmax(x, -1)
        return x

    f, x = fast(many), cuda(8, 64)
    for _ in range(5):
        same(f(x), many(x))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU,
                                            torch.profiler.ProfilerActivity.CUDA]) as profile:  # fmt: skip
        f(x)
        torch.cuda.synchronize()
    names = [event.name for event in profile.events()]
    assert sum("cudaGraphLaunch" in name or "cuGraphLaunch" in name for name in names) == 1
    assert not any("LaunchKernel" in name for name in names)


def test_through_torch_compile():
    net = Net().cuda()
    torch._dynamo.reset()
    f = torch.compile(net, backend=inductor.compile_fx, mode="reduce-overhead")
    with replays(4):
        for _ in range(6):
            x = cuda(16, 64)
            got = torch.autograd.grad(f(x).square().sum(), list(net.parameters()))
            same(got, torch.autograd.grad(net(x).square().sum(), list(net.parameters())), 1e-3)


def test_a_capture_that_fails_leaves_generator_and_allocator_usable():
    net = Net(0.5).cuda()
    default, f, x = pyframe.compile(net), fast(net), cuda(16, 64)
    for _ in range(4):
        f(x)
    for body in (lambda _: torch.rand(4, device="cuda").sum().item(), lambda _: 1 / 0):
        with pytest.raises((RuntimeError, ZeroDivisionError)):
            device_of("cuda:0").capture(body, [])
        torch.manual_seed(5)
        want = [default(x) for _ in range(6)]
        torch.manual_seed(5)
        for y in want:
            same(f(x), y)
        before = torch.cuda.memory_allocated()
        big = torch.rand(1 << 24, device="cuda")
        assert torch.cuda.memory_allocated() - before == big.nbytes
        del big
        assert torch.cuda.memory_allocated() == before
    with replays(1):
        f(x)
