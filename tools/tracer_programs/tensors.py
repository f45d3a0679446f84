"""Programs about memory, dtypes and constructors of tensors."""

from __future__ import annotations

from typing import Any

import torch

from .programs import program, x


@program
def torch_equal() -> Any:
    def f(a: Any, b: Any) -> Any:
        return a + 1 if torch.equal(a, b) else a - 1

    a = x()
    return f, [(a, a.clone()), (a, a + 1)]


@program
def torch_equal_returned() -> Any:
    def f(a: Any, b: Any) -> Any:
        return a * 2, torch.equal(a, b)

    a = x()
    return f, [(a, a.clone()), (a, a + 1)]


@program
def equal_of_the_same_tensor() -> Any:
    def f(a: Any) -> Any:
        return a + 1 if torch.equal(a, a) and a.equal(a) else a

    return f, [(x(),)]


@program
def equal_of_different_shapes() -> Any:
    def f(a: Any, b: Any) -> Any:
        return a + 1 if torch.equal(a, b) else a - 1

    return f, [(x(), x(5))]


@program
def allclose() -> Any:
    def f(a: Any, b: Any) -> Any:
        return a * 2, torch.allclose(a, b)

    a = x()
    return f, [(a, a.clone()), (a, a + 1)]


@program
def allclose_branch() -> Any:
    def f(a: Any, b: Any) -> Any:
        return a + 1 if torch.allclose(a, b) else a - 1

    a = x()
    return f, [(a, a.clone()), (a, a + 1)]


@program
def covariance() -> Any:
    def f(a: Any) -> Any:
        return torch.cov(a), torch.corrcoef(a), torch.cov(a[0])

    return f, [(x(3, 8),)]


@program
def covariance_with_weights() -> Any:
    def f(a: Any, w: Any, q: Any) -> Any:
        return torch.cov(a, fweights=w, aweights=q, correction=0)

    return f, [(x(3, 5), torch.tensor([1, 2, 1, 1, 3]), torch.rand(5))]


@program
def resize_of_a_new_tensor() -> Any:
    def f(a: Any) -> Any:
        b = torch.zeros(2)
        b.resize_(2, 3)
        b.copy_(a)
        return b + 1

    return f, [(x(2, 3),)]


@program
def resize_of_an_input() -> Any:
    def f(a: Any, b: Any) -> Any:
        a.resize_(b.shape)
        a.copy_(b)
        return a + 1

    a = torch.zeros(2)
    return f, [(a, x(2, 3))], lambda: a


@program
def resize_as() -> Any:
    def f(a: Any, b: Any) -> Any:
        c = a.clone()
        c.resize_as_(b)
        return c.fill_(2) + b

    return f, [(x(2), x(2, 3))]


@program
def out_of_another_size() -> Any:
    def f(a: Any) -> Any:
        out = torch.empty(0)
        torch.add(a, 1, out=out)
        return out * 2

    return f, [(x(),)]


@program
def out_is_an_input() -> Any:
    def f(a: Any, out: Any) -> Any:
        torch.sin(a, out=out)
        return out * 2

    out = torch.zeros(4)
    return f, [(x(), out)], lambda: out


@program
def set_of_a_tensor() -> Any:
    def f(a: Any, b: Any) -> Any:
        c = torch.empty(0)
        c.set_(b)
        return c + a

    return f, [(x(), x())]


@program
def set_of_an_input() -> Any:
    def f(a: Any, b: Any) -> Any:
        a.set_(b)
        return a + 1

    a = x(3)
    return f, [(a, x(5))], lambda: (a.shape, a)


@program
def view_of_an_input_in_place() -> Any:
    def f(a: Any) -> Any:
        a.unsqueeze_(0)
        return a + 1

    a = x(2, 3)
    return f, [(a,)], lambda: a


@program
def transpose_of_an_input_in_place() -> Any:
    def f(a: Any) -> Any:
        a.t_()
        b = a + 1
        a.transpose_(0, 1)
        return b, a * 2

    a = x(2, 3)
    return f, [(a,)], lambda: a


@program
def squeeze_in_place() -> Any:
    def f(a: Any) -> Any:
        b = a.clone()
        b.squeeze_(0)
        a.squeeze_()
        return a.sum() + b

    a = x(1, 3)
    return f, [(a,)], lambda: a


@program
def data_assigned() -> Any:
    def f(p: Any, a: Any) -> Any:
        p.data = a * 2
        return p + 1

    p = torch.nn.Parameter(x())
    return f, [(p, x())], lambda: p


@program
def data_written() -> Any:
    def f(p: Any, a: Any) -> Any:
        p.data.copy_(a)
        p.data.add_(1)
        return p * 2

    p = torch.nn.Parameter(x())
    return f, [(p, x())], lambda: p


@program
def dtypes_by_python_types() -> Any:
    def f(a: Any) -> Any:
        return a.to(float), a.to(int), a.to(bool), torch.zeros(2, dtype=float), torch.ones(2, dtype=int)

    return f, [(x(),)]


@program
def legacy_types() -> Any:
    def f(a: Any) -> Any:
        return a.type(torch.HalfTensor), a.type("torch.DoubleTensor"), a.type(), a.type(torch.int32)

    return f, [(x(),)]


@program
def legacy_constructors() -> Any:
    def f(a: Any) -> Any:
        return (
            torch.FloatTensor([1.0, 2.0]) + 1,
            torch.LongTensor([1, 2]),
            torch.Tensor([3.0]),
            torch.Tensor(2, 3).shape,
        )

    return f, [(x(),)]


@program
def isinstance_of_legacy_types() -> Any:
    def f(a: Any) -> Any:
        return a + 1 if isinstance(a, torch.FloatTensor) and not isinstance(a, torch.LongTensor) else a

    return f, [(x(),)]


@program
def new_methods() -> Any:
    def f(a: Any) -> Any:
        return a.new_zeros(2), a.new_tensor([1, 2]), a.new(2, 3).shape, a.new_full((2,), 3), a.new([1.0, 2.0])

    return f, [(x(),)]


@program
def tensor_of_lists() -> Any:
    def f(a: Any) -> Any:
        n = a.shape[0]
        return torch.tensor([n, 2, 3]) + torch.as_tensor([1, 2, n]), torch.tensor([[1.0, n]]), torch.tensor(n)

    return f, [(x(4),), (x(5),)]


@program
def tensor_of_tensors() -> Any:
    def f(a: Any) -> Any:
        return torch.tensor([a[0], a[1]]) + 1, torch.tensor([a.sum().item(), 2.0])

    return f, [(x(),)]


@program
def covariance_and_correlation() -> Any:
    def f(a: Any) -> Any:
        return torch.cov(a) + torch.corrcoef(a), a.cov(correction=0)

    return f, [(x(3, 5, grad=True),), (x(3, 5, grad=True),)]
