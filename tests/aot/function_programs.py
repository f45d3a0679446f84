"""Programs with autograd functions and with hooks. Each takes a list to log to and a tensor of shape (3, 4)."""

from __future__ import annotations

import torch
from torch.autograd import Function
from torch.autograd.function import once_differentiable


class Kept:
    """A tensor that a program logs, whose gradient is compared later."""

    def __init__(self, x):
        self.x = x


class Square(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 2 * x * g


class Exponential(Function):
    @staticmethod
    def forward(ctx, x):
        y = x.exp()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return g * y


class Doubled(Function):
    @staticmethod
    def forward(ctx, x):
        x.mul_(2)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx, g):
        return g * 2


class AddedInPlace(Function):
    @staticmethod
    def forward(ctx, x, y):
        x.add_(y)
        ctx.mark_dirty(x)
        return x, x * y

    @staticmethod
    def backward(ctx, g, h):
        return g + h, g + h


class Sorted(Function):
    @staticmethod
    def forward(ctx, x):
        v, i = x.sort()
        m = x > 0
        ctx.mark_non_differentiable(m, i)
        ctx.save_for_backward(i)
        return v, i, m

    @staticmethod
    def backward(ctx, g, gi, gm):
        (i,) = ctx.saved_tensors
        return torch.zeros_like(g).scatter(-1, i, g)


class OneDifferentiable(Function):
    @staticmethod
    def forward(ctx, x):
        a, b = x * 2, x * 3
        ctx.mark_non_differentiable(b)
        return a, b

    @staticmethod
    def backward(ctx, g, h):
        return g * 2 + (0 if h is None else h.sum())


class UndefinedGradients(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        return x * 2, x * 3

    @staticmethod
    def backward(ctx, g, h):
        out = 0
        if g is not None:
            out = out + g * 2
        if h is not None:
            out = out + h * 30
        return out


class ZeroGradients(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2, x * 3

    @staticmethod
    def backward(ctx, g, h):
        return g * 2 + h * 30 + 1


class OnceDifferentiable(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * x.cos()


class Flat(Function):
    @staticmethod
    def forward(ctx, x):
        return x.view(-1)

    @staticmethod
    def backward(ctx, g):
        return g.view(3, 4) * 2


class Rows(Function):
    @staticmethod
    def forward(ctx, x):
        return x[0], x[1]

    @staticmethod
    def backward(ctx, a, b):
        return torch.stack([a, b, a * 0])


class Same(Function):
    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, g):
        return g * 3


class SameView(Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        return -g


class WithConstants(Function):
    @staticmethod
    def forward(ctx, x, n, s):
        ctx.n = n
        return x * n, n, s

    @staticmethod
    def backward(ctx, g, *_):
        return g * ctx.n, None, None


class NoGradientOfSecond(Function):
    @staticmethod
    def forward(ctx, x, y):
        return x * y

    @staticmethod
    def backward(ctx, g):
        return g, None


class TooFewGradients(Function):
    @staticmethod
    def forward(ctx, x, y):
        return x * y

    @staticmethod
    def backward(ctx, g):
        return g


class GradientOfAnotherShape(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g[0]


class WithSetup(Function):
    @staticmethod
    def forward(x, k):
        return x * k, x + k

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, k = inputs
        ctx.k = k
        ctx.save_for_backward(x, output[0])

    @staticmethod
    def backward(ctx, g, h):
        x, o = ctx.saved_tensors
        return g * ctx.k + h * o + x, None


class NeededOnly(Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x * y

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        return (g * y if ctx.needs_input_grad[0] else None), (g * x if ctx.needs_input_grad[1] else None)


class SavesIntermediate(Function):
    @staticmethod
    def forward(ctx, x):
        t = x.sin()
        ctx.save_for_backward(t)
        return t * 2

    @staticmethod
    def backward(ctx, g):
        (t,) = ctx.saved_tensors
        return g * t


class KeepsAttribute(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.t = x.sin()
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * ctx.t


class ReturnsNone(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(True)
        return x + 1, None, x * 2

    @staticmethod
    def backward(ctx, a, b, c):
        return a + c


class DifferentiatesInside(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mode = torch.is_grad_enabled()
        with torch.enable_grad():
            d = x.detach().requires_grad_()
            y = d.sin()
        ctx.save_for_backward(d, y)
        return y.detach()

    @staticmethod
    def backward(ctx, g):
        d, y = ctx.saved_tensors
        with torch.enable_grad():
            return torch.autograd.grad(d.sin(), d, g)[0]


class WritesCopy(Function):
    @staticmethod
    def forward(ctx, x):
        y = x.clone()
        y.relu_()
        return y

    @staticmethod
    def backward(ctx, g):
        return g * 5


def alone(function):
    return lambda log, x: function.apply(x)


def of_intermediate(function):
    return lambda log, x: function.apply(x * 1.5) * 2


def returned_and_used(function):
    return lambda log, x: ((y := function.apply(x * 1.5)), y.sum())


def item(function, k):
    return lambda log, x: function.apply(x)[k] * 2


PROGRAMS = {}
for each in (
    Square, Exponential, OnceDifferentiable, Flat, Same, SameView, SavesIntermediate, KeepsAttribute,
    GradientOfAnotherShape, WritesCopy, DifferentiatesInside,
):  # fmt: skip
    for make in (alone, of_intermediate, returned_and_used):
        PROGRAMS[f"{each.__name__}, {make.__name__}"] = make(each)
for each in (Sorted, OneDifferentiable, UndefinedGradients, ZeroGradients, Rows):
    PROGRAMS[each.__name__] = alone(each)
    PROGRAMS[f"{each.__name__}, first"] = item(each, 0)
    PROGRAMS[f"{each.__name__}, second"] = item(each, 1)
PROGRAMS |= {
    "written": lambda log, x: Doubled.apply(x * 1.5),
    "written and argument": lambda log, x: (Doubled.apply(y := x * 1.5), y),
    "written input": lambda log, x: Doubled.apply(x),
    "written view": lambda log, x: (Doubled.apply((y := x * 1.5)[0]), y),
    "written flat view": lambda log, x: (Doubled.apply((y := x * 1.5).view(-1)), y),
    "written transpose": lambda log, x: (Doubled.apply((y := x * 1.5).t()), y * 2),
    "written view of zeros": lambda log, x: (AddedInPlace.apply((y := torch.zeros(3, 4))[0], x[1])[0], y),
    "written view, base used": lambda log, x: (Doubled.apply((y := x * 1.5)[0]), y * 2)[1],
    "written view of the input": lambda log, x: (Doubled.apply(x[0]), x * 1),
    "written is the result": lambda log, x: Doubled.apply(y := x * 1.5) is y,
    "used after the write": lambda log, x: (Doubled.apply(y := x * 1.5), y * 3)[1],
    "written, with another": lambda log, x: AddedInPlace.apply(x * 2, x),
    "written data, with another": lambda log, x: AddedInPlace.apply(x.detach().clone(), x),
    "constants": lambda log, x: WithConstants.apply(x, 3, "s"),
    "no gradient of the second": lambda log, x: NoGradientOfSecond.apply(x, x * 2),
    "too few gradients": lambda log, x: TooFewGradients.apply(x, x * 2),
    "setup_context": lambda log, x: WithSetup.apply(x, 2.0),
    "setup_context, second": lambda log, x: WithSetup.apply(x, 2.0)[1],
    "needs the first": lambda log, x: NeededOnly.apply(x, x.detach() * 2),
    "needs the second": lambda log, x: NeededOnly.apply(x.detach(), x * 2),
    "None among results": lambda log, x: ((r := ReturnsNone.apply(x))[0], r[2], r[1] is None),
    "view written": lambda log, x: Flat.apply(x * 1.0).add_(1),
    "one of two views written": lambda log, x: Rows.apply(x * 1.0)[0].add_(1),
    "view of the argument written": lambda log, x: (SameView.apply(y := x * 1.0).add_(1), y),
    "saved argument written": lambda log, x: (Square.apply(y := x * 1.0), y.add_(1))[0],
    "saved result written": lambda log, x: ((y := Exponential.apply(x)) * 1, y.add_(1))[0],
    "chain": lambda log, x: Square.apply(Exponential.apply(OnceDifferentiable.apply(x))),
}


def program(fn):
    PROGRAMS[fn.__name__] = fn
    return fn


@program
def function_under_no_grad(log, x):
    with torch.no_grad():
        y = Square.apply(x)
    return y, y + x


@program
def hook_on_an_intermediate(log, x):
    y = x * 2
    y.register_hook(lambda g: g * 10)
    return y.sin()


@program
def hook_that_logs(log, x):
    y = x * 2
    y.register_hook(lambda g: log.append(g.sum().item()))
    return y.sin()


@program
def hook_result(log, x):
    y = x * 2
    y.register_hook(lambda g: g + 1)
    return y


@program
def hook_result_and_user(log, x):
    y = x * 2
    y.register_hook(lambda g: g + 1)
    return y, y.sin()


@program
def hook_two(log, x):
    y = x * 2
    y.register_hook(lambda g: g + 1)
    y.register_hook(lambda g: g * 2)
    return y.sin()


@program
def hook_removed(log, x):
    y = x * 2
    h = y.register_hook(lambda g: g + 1)
    h.remove()
    return y.sin()


@program
def hook_handle_returned(log, x):
    y = x * 2
    h = y.register_hook(lambda g: g + 1)
    log.append(h.id is not None)
    return y.sin()


@program
def hook_view(log, x):
    y = x * 2
    v = y[0]
    v.register_hook(lambda g: g * 10)
    return y, v.sin()


@program
def hook_before_write(log, x):
    y = x * 2
    y.register_hook(lambda g: g * 10)
    y.add_(1)
    return y.sin()


@program
def hook_after_write(log, x):
    y = x * 2
    y.add_(1)
    y.register_hook(lambda g: g * 10)
    return y.sin()


@program
def hook_input(log, x):
    x.register_hook(lambda g: g * 10)
    return x.sin()


@program
def hook_none(log, x):
    y = x * 2
    y.register_hook(lambda g: None)
    return y.sin()


@program
def hook_wrong_shape(log, x):
    y = x * 2
    y.register_hook(lambda g: g[0])
    return y.sin()


@program
def retained_intermediate(log, x):
    y = x * 2
    y.retain_grad()
    log.append(Kept(y))
    return y.sin()


@program
def retain_result(log, x):
    y = x * 2
    y.retain_grad()
    log.append(Kept(y))
    return y, y.sin()


@program
def retain_leaf(log, x):
    x.retain_grad()
    return x.sin()


@program
def retain_detached(log, x):
    y = x.detach()
    y.retain_grad()
    return y


@program
def hook_after_accumulation(log, x):
    if x.is_leaf:
        x.register_post_accumulate_grad_hook(lambda t: log.append(t.grad.sum().item()))
    return x.sin()


@program
def hook_that_writes_after_accumulation(log, x):

    def h(t):
        t.grad.mul_(2)

    if x.is_leaf:
        x.register_post_accumulate_grad_hook(h)
    return x.sin()


@program
def hook_after_accumulation_of_no_leaf(log, x):
    y = x * 2
    y.register_post_accumulate_grad_hook(lambda t: None)
    return y


@program
def hook_of_a_node(log, x):
    y = x.sin()
    y.grad_fn.register_hook(lambda gi, go: log.append(len(gi)))
    return y * 2


@program
def prehook_of_a_node(log, x):
    y = x.sin()
    y.grad_fn.register_prehook(lambda go: (go[0] * 3,))
    return y * 2


@program
def hook_under_no_grad(log, x):
    y = x * 2
    with torch.no_grad():
        y.register_hook(lambda g: g * 4)
    return y.cos()


@program
def hook_on_detached(log, x):
    y = x.detach() * 2
    y.register_hook(lambda g: g)
    return y


@program
def hook_of_several(log, x):
    y, z = x * 2, x * 3
    torch.autograd.graph.register_multi_grad_hook(
        [y, z], lambda gs: log.append([None if g is None else g.sum().item() for g in gs])
    )
    return y.sin() + z


@program
def hook_order(log, x):
    y = x * 2
    z = y * 3
    y.register_hook(lambda g: log.append("y"))
    z.register_hook(lambda g: log.append("z"))
    return z, y


@program
def hooks_of_saved_tensors(log, x):
    with torch.autograd.graph.saved_tensors_hooks(
        lambda t: log.append("pack") or t, lambda t: log.append("unpack") or t
    ):
        return x.sin()
