"""Hooks of tensors, attributes of tensors, state of modules and functions of one's own: one graph, as in eager."""

from __future__ import annotations

import collections

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._higher_order_ops.map import map as map_over
from torch_level_support import Table, agree, rand

whole = Table()
broken = Table()


@whole((3, 4), (4,))
def hooks_of_tensors(x, s):
    y = x * 2
    z = y.sin()
    y.register_hook(lambda g: g * s.detach() + 1)
    gone = y.register_hook(lambda g: g * 100)
    gone.remove()
    w = F.relu(y * 3)
    w.register_hook(lambda g: None)
    return z, w


@whole((3, 4))
def hooks_of_inputs(x):
    z = x.sin()
    x.register_hook(lambda g: g * 2)
    x.register_hook(lambda g: g.clamp(-0.5, 0.5))
    return z + x.cos()


@whole()
def hook_is_a_method():
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.l, self.k = nn.Linear(4, 4), 3.0
            self.l.weight.register_hook(lambda g: g * 2)

        def scale(self, g):
            return g * self.k

        def forward(self, x):
            h = self.l(x)
            if h.requires_grad:
                h.register_hook(self.scale)
            return F.relu(h)

    return M(), [(rand(2, 4),), lambda m: setattr(m, "k", 5.0), (rand(2, 4),)]


@whole()
def handles_leave():
    def f(x, kept):
        y = x * 2
        kept.append(y.register_hook(lambda g: g * 3))
        kept.append(y.register_hook(lambda g: g + 1))
        return y

    def g(x, kept):
        y = f(x, kept) * 1
        return y.sin()

    return g, [(rand(2, 4), []), (rand(2, 4), [])]


@whole((3, 4))
def retained(x):
    y = x * 2
    z = y.sin()
    y.retain_grad()
    return z, y.grad, y.retains_grad, y.grad_fn.name(), y.grad_fn is y.grad_fn, y.grad_fn is not None, bool(y.grad_fn)


@broken()
def hooks_that_change_objects():
    seen = []

    def f(x):
        y = x * 2
        y.register_hook(lambda g: seen.append(g * 1))
        handle = y.register_hook(lambda g: g * 3)
        other = y.register_hook(lambda g: g + 1)
        print(end="")
        handle.remove()
        y.grad_fn.register_hook(lambda given, taken: None)
        return y.sin(), type(other)

    f.state = seen
    return f, [(rand(2, 4),), (rand(2, 4),)]


@whole((3, 4), grad=False)
def attributes(x):
    x.seen = 3
    y = x * 2
    y.tag, y.other = "a", x
    z = y + 1
    return x.seen, y.tag, y.other is x, hasattr(z, "tag"), getattr(z, "tag", None), y


@whole((3, 4), grad=False)
def views_in_place(x):
    y = x.clone()
    view = y.view(-1)
    y.t_().unsqueeze_(0)
    y.squeeze_(0)
    y.transpose_(0, 1).mul_(2)
    return y, view, y.shape, (x * 2).t_(), x * 1


@whole((3, 4), (4,))
def mapped(x, s):
    return map_over(lambda row, t: (row.sin() + t, row * 2), x, s)


@whole()
def state_dicts():
    m = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))

    def f(x):
        state = m.state_dict()
        m.load_state_dict({name: value * 2 for name, value in state.items()})
        return m(x), state, list(state._metadata)

    return f, [(rand(2, 4, grad=False),), (rand(2, 4, grad=False),)]


@whole()
def attributes_of_ordered_dicts():
    given = collections.OrderedDict(a=1)

    def f(x, d):
        made = collections.OrderedDict(b=2)
        made.meta = 7
        d.more = getattr(d, "meta", 0) + 1
        return x * d.more, getattr(d, "nothing", None), made, made.meta, hasattr(made, "other")

    calls = [(rand(2), given)]
    return f, [*calls, lambda f: setattr(given, "meta", 6), *calls, lambda f: setattr(given, "nothing", 1), *calls]


@whole()
def containers_changed():
    m = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))

    def f(x):
        m.append(nn.Tanh())
        m.insert(0, nn.Identity())
        m[1] = nn.Sigmoid()
        y = m(x)
        m.pop(0)
        del m[-1]
        return y, len(m), m(x), [name for name, _ in m.named_children()]

    return f, [(rand(2, 4, grad=False),), (rand(2, 4, grad=False),)]


@whole()
def parts_given_later():
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = self.act = self.buf = None

        def forward(self, x):
            if self.act is None:
                self.act, self.w, self.buf = nn.Linear(4, 4), nn.Parameter(torch.ones(4)), torch.zeros(4)
            names = [name for name, _ in self.named_parameters()], [name for name, _ in self.named_children()]
            return self.act(x) * self.w + self.buf, names, sum(p.numel() for p in self.parameters())

    return M(), [(rand(2, 4, grad=False),), (rand(2, 4, grad=False),), (rand(2, 4, grad=False),)]


class Reversed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, k):
        ctx.k = k
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        return -g * ctx.k, None


class Passed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        return x, y * 2

    @staticmethod
    def backward(ctx, g, h):
        return g * 3, h * 5


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx, g):
        return g * 2


@whole((3, 4), (3, 4))
def functions_that_give_back_inputs(x, y):
    h = x * 2
    return Reversed.apply(h, 0.5).sin() + h, Passed.apply(h, y), Passed.apply(x, y)


@whole((3, 4), grad=False)
def without_gradients(x):
    y = Doubled.apply(x)
    return y is x, y, Passed.apply(x, x)[0] is x


@pytest.mark.parametrize("build", whole.cases.values(), ids=whole.cases)
def test_one_graph(build):
    agree(build)


@pytest.mark.parametrize("build", broken.cases.values(), ids=broken.cases)
def test_right(build):
    agree(build, breaks=None)


@pytest.mark.parametrize("name", ["hooks_of_tensors", "hooks_of_inputs", "functions_that_give_back_inputs"])
def test_kernels(name):
    agree(whole.cases[name], "inductor")
