"""Programs whose results, errors and gradients torch's fake operators describe otherwise than eager gives them."""

from __future__ import annotations

import pytest
import torch

import pyframe


def _both(fn, make, **options):
    """What eager and the compiled function give, or the exceptions that they raise, and the arguments afterwards."""
    found = []
    for run in (fn, pyframe.compile(fn, **options)):
        args = make()
        try:
            found.append((run(*args), args))
        except Exception as error:
            found.append((error, args))
    return found


WRITES = {
    "div_": (lambda a, b: a.div_(b), lambda: (torch.arange(3), torch.ones(3, dtype=torch.int64))),
    "/=": (lambda a: a.__itruediv__(2), lambda: (torch.arange(3),)),
    "ldexp_": (lambda a, b: a.ldexp_(b), lambda: (torch.arange(3), torch.arange(3))),
    "logit_": (lambda a: a.logit_(), lambda: (torch.arange(3),)),
    "clamp_min_": (lambda a, b: a.clamp_min_(b), lambda: (torch.ones(5, 1), torch.ones(5, 5))),
    "eq_": (lambda a, b: a.eq_(b), lambda: (torch.ones(5, 1), torch.ones(5, 5))),
    "addr_": (lambda a, b: a.addr_(b, b), lambda: (torch.tensor(1.0), torch.ones(5))),
    "masked_scatter_": (
        lambda a, b, c: a.masked_scatter_(b, c), lambda: (torch.ones(5), torch.ones(5, 5) > 0, torch.ones(25))
    ),
}  # fmt: skip


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", WRITES)
def test_in_place_errors(name, dynamic):
    fn, make = WRITES[name]
    (want, before), (got, after) = _both(fn, make, dynamic=dynamic)
    assert type(want) is RuntimeError and type(got) is RuntimeError
    assert all(torch.equal(x, y) for x, y in zip(before, after, strict=True))


def test_in_place_error_of_a_computed_tensor():
    def fn(a, b):
        c = a * 2
        try:
            c.clamp_min_(b)
        except RuntimeError:
            return c + 1
        return c

    (want, _), (got, _) = _both(fn, lambda: (torch.ones(5, 1), torch.ones(5, 5)))
    assert torch.equal(want, got)


def test_conj_bits_of_gradients():
    def gradient(fn):
        torch.manual_seed(0)
        x = torch.randn(5, dtype=torch.complex64, requires_grad=True)
        y = torch.randn(5, requires_grad=True)
        return torch.autograd.grad((fn(x) * y.sum()).sum(), (x, y))

    compiled = pyframe.compile(torch.fft.hfft)
    for _ in range(2):
        want, got = gradient(torch.fft.hfft), gradient(compiled)
        assert [x.is_conj() for x in got] == [x.is_conj() for x in want] == [True, False]
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize("requires_grad", [False, True])
def test_copies_with_holes(requires_grad):
    def fn(x, v):
        y = torch.select_scatter(x[:, ::2, ::2], v, 0, 1)
        return y, y.select_scatter(v, 0, 2) * 2

    x, v = torch.randn(4, 6, 6, requires_grad=requires_grad), torch.randn(3, 3)
    want = fn(x, v)
    got = pyframe.compile(fn)(x, v)
    for a, b in zip(want, got, strict=True):
        assert torch.equal(a, b) and a.stride() == b.stride()


@pytest.mark.parametrize("requires_grad", [False, True])
def test_results_that_are_views_of_complex_products(requires_grad):
    """`_unsafe_view` gives a view, which its schema does not say: the products must not lie in memory that is reused."""

    def fn(a, b, c, d):
        return torch.matmul(a, b), torch.matmul(c, d), torch.matmul(a + c, d)

    torch.manual_seed(0)
    args = [torch.randn(*size, dtype=torch.complex64) for size in ((10,), (5, 10, 5), (10,), (5, 10, 5))]
    args[0].requires_grad_(requires_grad)
    compiled = pyframe.compile(fn)
    for _ in range(2):
        got = compiled(*args)
        torch.testing.assert_close(got, fn(*args))
        assert len({x.untyped_storage().data_ptr() for x in got}) == 3


def _written_half(a):
    half = a.shape[0] // 2
    a[half:].add_(a[:half])
    return a * 2


def _shifted(a):
    a[1:].add_(a[:-1])
    return a * 2


OUTS = {
    "larger": (lambda a, o: torch.add(a, 1, out=o), lambda: (torch.ones(3), torch.empty(0))),
    "smaller": (lambda a, o: torch.add(a, 1, out=o), lambda: (torch.ones(3), torch.zeros(5))),
    "same": (lambda a: torch.add(a, 1, out=a), lambda: (torch.ones(3),)),
    "double": (lambda a, o: torch.add(a, 1, out=o), lambda: (torch.ones(3), torch.zeros(3, dtype=torch.float64))),
    "int": (lambda a, o: torch.add(a, 1, out=o), lambda: (torch.ones(3), torch.zeros(3, dtype=torch.int64))),
    "double of aminmax": (
        lambda a, o: torch.aminmax(a, out=(o, o[0])).min, lambda: (torch.ones(3), torch.zeros(1, dtype=torch.float64))
    ),
    "expanded": (lambda a, o: torch.add(a, 1, out=o.expand(3)), lambda: (torch.ones(3), torch.zeros(1))),
    "a part": (lambda a: torch.add(a[1:], 1, out=a[:-1]), lambda: (torch.arange(4.0),)),
    "taken of itself": (lambda a, i: torch.take(a, i, out=a[:2]), lambda: (torch.arange(3.0), torch.tensor([1, 2]))),
    "the other half": (_written_half, lambda: (torch.arange(6.0),)),
    "shifted": (_shifted, lambda: (torch.arange(6.0),)),
}


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", OUTS)
def test_out_tensors(name, dynamic):
    """The result, or an exception of the same type, and the arguments afterwards."""
    fn, make = OUTS[name]
    (want, before), (got, after) = _both(fn, make, dynamic=dynamic)
    assert type(want) is type(got)
    if isinstance(want, torch.Tensor):
        assert torch.equal(want, got) and want.dtype == got.dtype
    assert all(torch.equal(x, y) for x, y in zip(before, after, strict=True))


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("fn", [lambda a: torch.linalg.cholesky(a - 10) * 2, lambda a: torch.linalg.inv(a * 0) * 2])
def test_matrices_without_a_factor(fn, requires_grad):
    with pytest.raises(torch.linalg.LinAlgError):
        pyframe.compile(fn)(torch.eye(3, requires_grad=requires_grad))


DIAGONALS = {
    "of a product": lambda x: torch.einsum("bi,ci->bc", x, x.flip(0)).fill_diagonal_(2),
    "of a view of a view": lambda x: (x @ x.mT).view(4, -1).t().unsqueeze(0).squeeze(0).fill_diagonal_(2.5),
    "of many rows": lambda x: torch.cat([x * 2, x, x]).t().t().fill_diagonal_(3),
    "of many columns": lambda x: torch.cat([x * 2, x, x], 1).t().t().fill_diagonal_(3, wrap=True),
    "that wraps": lambda x: torch.cat([x * 2, x, x]).fill_diagonal_(3, wrap=True),
    "of three dimensions": lambda x: (x * 2)[:, :, None].expand(4, 4, 4).contiguous().permute(1, 2, 0).fill_diagonal_(1),
    "of a copy": lambda x: x.clone().fill_diagonal_(1) + x,
}  # fmt: skip


@pytest.mark.parametrize("name", DIAGONALS)
def test_diagonals_are_filled_in_the_graph(name):
    """ATen writes through `as_strided`, which cannot be made functional for a view of a view."""
    fn = DIAGONALS[name]
    x = torch.randn(4, 4, requires_grad=True)
    y = x.detach().clone().requires_grad_()
    want, got = fn(x), pyframe.compile(fn, options={"strict": True})(y)
    torch.testing.assert_close(got, want)
    assert got.stride() == want.stride()
    want.pow(2).sum().backward()
    got.pow(2).sum().backward()
    torch.testing.assert_close(y.grad, x.grad)
