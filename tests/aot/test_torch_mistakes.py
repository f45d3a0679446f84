"""Operators whose decomposition in torch computes something else than ATen."""

import itertools

import pytest
import torch
import torch.nn.functional as F

import pyframe


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_bytes_are_interpolated_as_by_aten_for_sizes_that_vary(mode):
    def enlarged(x):
        return F.interpolate(x, scale_factor=2.0, mode=mode)

    compiled = pyframe.compile(enlarged, dynamic=True)
    for n in (8, 9):
        x = torch.randint(0, 256, (2, 3, n, n + 2), dtype=torch.uint8)
        assert torch.equal(compiled(x), enlarged(x))


@pytest.mark.parametrize("dynamic", [False, True])
def test_dropout_that_drops_nothing_is_its_argument(dynamic):
    def fn(x):
        y = F.dropout(x[1:], 0.5, training=False)
        x.add_(1)
        return F.dropout(x, 0.5, training=False), y, y[1:]

    x = torch.zeros(4, 3)
    whole, part, rest = pyframe.compile(fn, dynamic=dynamic)(x)
    assert whole is x
    assert part.data_ptr() == x[1:].data_ptr()
    assert rest.data_ptr() == x[2:].data_ptr()
    assert (part == 1).all()


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("grad", [False, True])
def test_dropout_that_drops_everything_draws_no_random_numbers(dynamic, grad):
    def fn(x):
        return F.dropout(x, 1.0, training=True), F.dropout(x[:0], 0.5, training=True), F.dropout(x, 0.5, training=True)

    results = []
    for run in (fn, pyframe.compile(fn, dynamic=dynamic)):
        torch.manual_seed(0)
        results.append(run(torch.arange(1.0, 20.0).requires_grad_(grad)))
    for got, want in zip(*results):
        assert torch.equal(got, want)


def _with_zeros(x):
    x[torch.tensor([1, 2])] = 0
    return x


IN_PLACE_UNDER_AUTOCAST = {
    "addmm_": lambda x, a, b: x.clone().addmm_(a, b),
    "baddbmm_": lambda x, a, b: x.clone()[None].baddbmm_(a[None], b[None]),
    "addmv_": lambda x, a, b: x[0].clone().addmv_(a, b[0]),
    "pow_": lambda x, a, b: x.bfloat16().pow_(3).exp_(),
    "setitem": lambda x, a, b: _with_zeros(x.half()),
    "setitem of float64": lambda x, a, b: _with_zeros(x.double()),
}


@pytest.mark.parametrize("name", IN_PLACE_UNDER_AUTOCAST)
@pytest.mark.parametrize("grad", [False, True])
def test_autocast_leaves_in_place_operators_alone(name, grad):
    """What functionalization makes of them would be computed in half precision."""

    def fn(x, a, b):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return IN_PLACE_UNDER_AUTOCAST[name](x, a, b)

    x, a, b = torch.ones(8, 8), torch.randn(8, 8, requires_grad=grad), torch.randn(8, 8)
    want, got = fn(x, a, b), pyframe.compile(fn)(x, a, b)
    torch.testing.assert_close(got, want)
    if want.requires_grad:
        gradients = [torch.autograd.grad(y.square().sum(), a)[0] for y in (want, got)]
        torch.testing.assert_close(*gradients)


def _with_extremes(*shape, dtype=torch.float32):
    """Normal random numbers with infinities, NaN and large numbers among them."""
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    special = torch.tensor([float("inf"), -float("inf"), float("nan"), 1e30, -1e30])
    x.view(-1)[torch.randperm(x.numel(), generator=torch.Generator().manual_seed(1))[:5]] = special
    return x.to(dtype)


@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("mode, dims", [("linear", 1), ("bilinear", 2), ("trilinear", 3)])
def test_linear_interpolation_of_extreme_values(mode, dims, align_corners):
    """With `v0 + (v1 - v0) * w`, a neighbour that is infinite gives NaN, and one that is large hides the other."""
    x = _with_extremes(2, 2, *([4] * dims))
    for dynamic, outs in ((True, (3, 4, 7)), (False, (7,))):
        for out in outs:
            def resized(x, out=out):
                return F.interpolate(x, size=[out] * dims, mode=mode, align_corners=align_corners)

            torch.testing.assert_close(pyframe.compile(resized, dynamic=dynamic)(x), resized(x), equal_nan=True)


def test_gradient_of_linear_interpolation_with_sizes_that_vary():
    def resized(x):
        return F.interpolate(x, scale_factor=1.5, mode="bilinear")

    compiled = pyframe.compile(resized, dynamic=True)
    for n in (4, 5):
        x = torch.randn(2, 3, n, n + 1).contiguous(memory_format=torch.channels_last).requires_grad_()
        want, got = resized(x), compiled(x)
        torch.testing.assert_close(got, want)
        assert got.stride() == want.stride()
        g = torch.randn_like(want)
        torch.testing.assert_close(torch.autograd.grad(got, x, g), torch.autograd.grad(want, x, g))


@pytest.mark.parametrize("reduction", ["none", "mean"])
@pytest.mark.parametrize("beta", [1.0, 0.0])
def test_gradients_of_smooth_l1_loss_of_two_dtypes(reduction, beta):
    """ATen's kernel returns the dtype of the argument; its fake kernel predicts the dtype to which both promote."""
    for kinds in itertools.permutations((torch.float32, torch.float16, torch.bfloat16, torch.float64), 2):
        x, y = (torch.linspace(-n, 3, 6, dtype=kind, requires_grad=True) for n, kind in enumerate(kinds))
        want, got = (
            torch.autograd.grad(run(x, y, reduction=reduction, beta=beta).sum(), [x, y])
            for run in (F.smooth_l1_loss, pyframe.compile(F.smooth_l1_loss))
        )
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("loss", [
    F.smooth_l1_loss, lambda *args, **options: F.smooth_l1_loss(*args, beta=0.25, **options), F.huber_loss, F.l1_loss,
    F.mse_loss,
], ids=["smooth_l1", "smooth_l1 of 1/4", "huber", "l1", "mse"])  # fmt: skip
def test_gradients_of_losses_of_extreme_values(loss, reduction, dtype):
    inf, nan = float("inf"), float("nan")
    x = torch.tensor([inf, nan, -inf, 1.0, 0.0, 0.25, -0.25, 1e30, 2.0, inf, 3.0], dtype=dtype, requires_grad=True)
    y = torch.tensor([inf, 1.0, inf, nan, 0.0, 0.0, 0.0, -1e30, -2.0, 1.0, 2.0], dtype=dtype)

    def gradient(x, y):
        return torch.autograd.grad(loss(x, y, reduction=reduction).sum(), x)[0]

    torch.testing.assert_close(pyframe.compile(gradient)(x, y), gradient(x, y), equal_nan=True)


@pytest.mark.parametrize("n", [1, 40])
def test_gradient_of_logit_at_nan(n):
    """NaN, as in ATen's kernels for GPUs and single elements; its vectorized ones give 0 if eps is given."""
    x = torch.tensor([float("nan"), 0.05, 0.5, 2.0] * n, requires_grad=True)

    def gradient(x, eps):
        return torch.autograd.grad(torch.logit(x, eps).sum(), x)[0]

    for eps in (None, 0.125):
        want = gradient(torch.tensor([float("nan"), 0.05, 0.5, 2.0], requires_grad=True), eps).repeat(n)
        torch.testing.assert_close(pyframe.compile(gradient)(x, eps), want, equal_nan=True)


@pytest.mark.parametrize("shrink", [F.softshrink, F.hardshrink])
def test_gradient_of_shrunk_numbers_is_zero_whatever_follows(shrink):
    """ATen gives zero where torch's Python kernel multiplies the gradient by zero: 0 * (0 / 0) at hypot(0, 0)."""

    def gradient(x, y):
        return torch.autograd.grad(torch.hypot(shrink(x), y).sum(), x)[0]

    x, y = torch.tensor([0.0, 0.5, -0.25, 1.0, -3.0], requires_grad=True), torch.zeros(5)
    assert torch.equal(pyframe.compile(gradient)(x, y), torch.tensor([0.0, 0.0, 0.0, 1.0, -1.0]))
    assert torch.equal(gradient(x, y), torch.tensor([0.0, 0.0, 0.0, 1.0, -1.0]))
