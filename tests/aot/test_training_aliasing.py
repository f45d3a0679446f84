"""Aliasing, writes and gradients in all combinations: eager is the oracle."""

import pytest
import torch
from training_support import check, compiles, set_grad

KINDS = ["leaf", "mid", "data", "view"]


def pure(x, y):
    return (x * y).sin() + x


def two(x, y):
    return x.exp(), (y * 2).tanh()


def one_dead(x, y):
    return (x * y).exp(), y.detach() * 3, 5, None


def integer(x, y):
    return x.argmax(1), (x * y).sum(1), x > y


def input_out(x, y):
    return x, x * y


def input_twice(x, y):
    return x, (y + 1, x)


def view_of_input(x, y):
    return x.t(), (x * y)


def slice_of_input(x, y):
    return x[1:, ::2], y.unsqueeze(0)


def expand_of_input(x, y):
    return x[0].expand(5, 4), y


def detached_input(x, y):
    return x.detach(), x * y


def nograd_view(x, y):
    set_grad(x, False)
    v = x.t()
    set_grad(x, True)
    return v, x * y


def nograd_view_of_fresh(x, y):
    z = x * y
    set_grad(x, False)
    v = z.t()
    set_grad(x, True)
    return v, x + y


def nograd_part(x, y):
    set_grad(x, False)
    m = (x * y).mean()
    set_grad(x, True)
    return (x - m) * y


def shared_out(x, y):
    z = x * y
    return z, z.t(), z[1:]


def shared_views_only(x, y):
    z = (x * y).exp()
    a, b = z.split([1, 2])
    return a, b.t()


def shared_chunks(x, y):
    q, k = torch.cat([x, y], 1).chunk(2, 1)
    return q, k


def shared_detached(x, y):
    z = x * y
    return z, z.detach()


def same_twice(x, y):
    z = x + y
    return z, z


def view_only(x, y):
    return (x * y).exp().t()


def slice_only(x, y):
    return (x * y).exp()[1:]


def write(x, y):
    x.mul_(y)
    return x.sin()


def write_and_return(x, y):
    x.add_(y)
    return x, x * 2


def write_return_view(x, y):
    x.mul_(2)
    return x.t(), x[0]


def write_view(x, y):
    x[0].mul_(3)
    return x + y


def write_through_t(x, y):
    x.t().add_(1)
    return x * y


def write_nograd(x, y):
    set_grad(x, False)
    x.mul_(2)
    set_grad(x, True)
    return x * y


def write_detached(x, y):
    x.detach().mul_(2)
    return x * y


def write_both(x, y):
    x.add_(1)
    y.mul_(2)
    return x * y


def write_copy(x, y):
    x.copy_(y)
    return y.exp()


def write_copy_cross(x, y):
    old = x.clone()
    x.copy_(y)
    y.copy_(old)
    return old * 2


def write_twice(x, y):
    x.add_(1)
    z = x * y
    x.add_(1)
    return z + x


def write_saved(x, y):
    z = x.exp() * y
    y.add_(1)
    return z


def write_saved_result(x, y):
    z = x.exp()
    z.add_(y)
    return z


def write_fresh(x, y):
    z = x + y
    z.mul_(2).relu_()
    return z


def write_fresh_view(x, y):
    z = torch.zeros_like(x)
    z[0].copy_(y[0])
    z[1:].add_(x[1:])
    return z


def write_old_view(x, y):
    v = x.t()
    x.mul_(2)
    return v + 1, v


def fill(x, y):
    x.fill_(2.0)
    return x * y


def zero_result(x, y):
    x.zero_()
    return y + 1


def write_metadata(x, y):
    x.t_()
    return x + 1


def copied_out(x, y):
    z = torch.empty_like(x)
    z.copy_(x)
    return z, x * y


def copied_from_transposed(x, y):
    z = torch.empty(4, 3)
    z.copy_(x.t())
    return z


def new_leaf(x, y):
    return torch.ones(3).requires_grad_(), x * y


def detach_in_place(x, y):
    z = x * y
    z.detach_()
    return z, x + y


def reused(x, y):
    z = x.tanh()
    return z, z * z * y, z.sum()


def relu_chain(x, y):
    return (x @ y.t()).relu().softmax(-1).log()


FUNCTIONS = [value for value in list(globals().values()) if callable(value) and getattr(value, "__module__", "") == __name__]
CASES = [(fn, (a, b)) for fn in FUNCTIONS for a in KINDS for b in ("leaf", "data")]
CASES += [(fn, (a, "mid")) for fn in FUNCTIONS for a in ("leaf", "mid") if fn.__name__.startswith("write")]


@pytest.mark.parametrize("fn, kinds", CASES, ids=lambda x: x.__name__ if callable(x) else "-".join(x))
def test_as_eager(fn, kinds):
    check(fn, kinds)


REFUSED = {"write_saved_result", "nograd_view_of_fresh"}
WRITE_A_LEAF = {"write_both", "write_copy_cross", "write_saved"}  # where the second input is one


@pytest.mark.parametrize("fn", FUNCTIONS, ids=lambda fn: fn.__name__)
def test_all_but_what_eager_refuses_is_compiled(fn):
    assert compiles(fn, ("mid", "leaf")) == (fn.__name__ not in REFUSED | WRITE_A_LEAF)
    if fn.__name__.startswith("write"):
        assert compiles(fn, ("mid", "mid")) == (fn.__name__ not in REFUSED)
