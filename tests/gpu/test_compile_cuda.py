"""compile_fx on a GPU against eager: every operator sample, effects, streams, indices out of bounds."""


import pytest
import torch
import torch.nn.functional as F
from op_samples import every
from torch import fx

import inductor
import pyframe

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
torch.manual_seed(0)
SAMPLES = every()


def to_gpu(x):
    return x.cuda() if isinstance(x, torch.Tensor) else x


def compiled(fn, *args, strict=True):
    gm = fx.experimental.proxy_tensor.make_fx(lambda *a: as_list(fn(*a)))(*args)
    with torch.no_grad():
        return inductor.compile_fx(gm, list(args), options={"strict": strict}), gm


def as_list(out):
    return list(out) if isinstance(out, (tuple, list)) else [out]


@pytest.mark.parametrize("name", SAMPLES)
def test_sample(name):
    fn, *args = SAMPLES[name]
    on_gpu = lambda *a: [to_gpu(x) for x in as_list(fn(*a))]  # some samples make CPU tensors themselves
    args = [to_gpu(a) for a in args]
    try:
        with torch.device("cuda"):
            want = as_list(on_gpu(*args))
            gm = fx.experimental.proxy_tensor.make_fx(lambda *a: as_list(fn(*a)))(*args)
    except (RuntimeError, NotImplementedError) as error:
        pytest.skip(f"eager on a GPU: {error}")
    with torch.no_grad():
        got = inductor.compile_fx(gm, list(args), options={"strict": True})(*args)
    for a, e in zip(got, want):
        tol = 2e-2 if e.dtype in (torch.bfloat16, torch.float16) else 1e-4
        torch.testing.assert_close(a, e, rtol=tol, atol=tol, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [(64, 1000), (512, 4096), (3, 70001), (8192, 33)])
def test_rows(shape, dtype):
    def fn(x, w):
        y = (x.softmax(-1) + x) * 2
        return F.layer_norm(y, y.shape[-1:], w), y.float().sum(0), x.argmax(-1), F.gelu(x).amax(0), x.t() + 1

    x, w = torch.randn(shape, device="cuda", dtype=dtype), torch.randn(shape[1], device="cuda", dtype=dtype)
    call, gm = compiled(fn, x, w)
    tol = 2e-2 if dtype != torch.float32 else 1e-4
    for a, e in zip(call(x, w), gm(x, w)):
        scale = max(1.0, e.abs().max().item())
        torch.testing.assert_close(a.double() / scale, e.double() / scale, rtol=tol, atol=tol)


def test_effects_and_streams():
    def fn(x, y):
        x.add_(y)
        return x * 2, (x @ y).relu() + 1

    x, y = torch.randn(64, 64, device="cuda"), torch.randn(64, 64, device="cuda")
    call, _ = compiled(fn, x.clone(), y)
    mine, theirs = x.clone(), x.clone()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        stream.wait_stream(torch.cuda.default_stream())
        got = call(mine, y)
    torch.cuda.synchronize()
    torch.testing.assert_close(got, fn(theirs, y), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(mine, theirs)


def test_a_sum_in_an_order_that_is_not_the_memorys():
    # the offset is a sum of multiples of quotients, which LLVM computes in pairs of 16 bits
    x = torch.randn(5, 17, 17, 5, device="cuda").permute(0, 3, 1, 2)
    for scale in (1, 2):
        torch.testing.assert_close(pyframe.compile(torch.nansum)(x * scale), (x * scale).double().nansum().float())


def test_misaligned_inputs_are_right():
    base = torch.randn(65, 64, device="cuda")
    call, gm = compiled(lambda x: x.exp() + 1, base[:64].clone())
    odd = torch.randn(64 * 64 + 1, device="cuda")[1:].view(64, 64)
    torch.testing.assert_close(call(odd), gm(odd))


def test_training_step():
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.LayerNorm(256), torch.nn.Linear(256, 8))
    model.cuda()
    x, target = torch.randn(32, 64, device="cuda"), torch.randint(0, 8, (32,), device="cuda")
    gm = fx.symbolic_trace(model)
    call = inductor.compile_fx(gm, [x], options={"strict": True})
    grads = []
    for fn in (model, call):
        F.cross_entropy(fn(x), target).backward()
        grads.append([p.grad for p in model.parameters()])
        model.zero_grad()
    torch.testing.assert_close(grads[0], grads[1], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_small_integers_as_floats(dtype):
    def fn(x, i, n):
        signs = torch.where(x > 0, 1, torch.where(x < 0, -1, 0))
        return torch.sign(x), signs.to(dtype), (-(x > 0).int()).to(dtype), i.to(dtype), n.to(dtype), n * 0.5

    x = torch.randn(400, device="cuda").to(dtype)
    i = torch.tensor([-(2**31), -1, 0, 1, 2**31 - 1], dtype=torch.int32, device="cuda")
    n = torch.tensor([-(2**63), -1, 0, 1, 2**63 - 1], device="cuda")
    got, _ = compiled(fn, x, i, n)
    for a, e in zip(got(x, i, n), fn(x, i, n)):
        torch.testing.assert_close(a, e, rtol=0, atol=0)


def _written_by_lists(x):
    y = x * 2
    y[y > 0] = 0
    y[[0, 2]] = 1.5
    return y, x[[1, -1]], x * torch.tensor(2.5), torch.where(x > 0, x, torch.tensor(1.0))


@pytest.mark.parametrize("grad", [False, True])
def test_constants_on_the_cpu(grad):
    x = torch.randn(4, 5, device="cuda")
    check_both(_written_by_lists, x, grad=grad)


@pytest.mark.parametrize("grad", [False, True])
def test_numbers_on_the_cpu(grad):
    x, s = torch.randn(4, 5, device="cuda"), torch.tensor(1.5)
    check_both(lambda x, s: (x * s + 1, (x - s).sum()), x, s, grad=grad)
    check_both(lambda x, s: (x * s, (x.sum() * s).cpu()), x, s, grad=grad)


def check_both(fn, *args, grad):
    """`fn` captured and compiled, with no fallback, against eager: results, their devices, and gradients."""
    given = [[a.clone().requires_grad_(grad) for a in args] for _ in range(2)]
    want, got = fn(*given[0]), pyframe.compile(fn, options={"strict": True})(*given[1])
    for a, b in zip(want, got):
        assert a.device == b.device
        torch.testing.assert_close(b, a)
    if grad:
        sums = [sum(x.sum().cuda() for x in outs) for outs in (want, got)]
        for a, b in zip(*(torch.autograd.grad(s, inputs) for s, inputs in zip(sums, given))):
            assert a.device == b.device
            torch.testing.assert_close(b, a)


def test_the_gradient_of_an_associative_scan():
    """Also where torch's own operator for it has none, in torch 2.11."""
    from torch._higher_order_ops.associative_scan import associative_scan

    def combine(left, right):
        return left[0] * right[0], right[0] * left[1] + right[1]

    def scanned(a, b):
        return associative_scan(combine, (a, b), dim=1, combine_mode="pointwise")[1]

    def looped(a, b):
        rows = [b[:, 0]]
        for k in range(1, a.shape[1]):
            rows.append(a[:, k] * rows[-1] + b[:, k])
        return torch.stack(rows, 1)

    given = [torch.rand(3, 7, device="cuda", requires_grad=True) for _ in range(2)]
    twins = [x.detach().clone().requires_grad_() for x in given]
    ours, want = pyframe.compile(scanned, fullgraph=True)(*given), looped(*twins)
    torch.testing.assert_close(ours, want)
    ours.square().sum().backward()
    want.square().sum().backward()
    for x, twin in zip(given, twins):
        torch.testing.assert_close(x.grad, twin.grad)
