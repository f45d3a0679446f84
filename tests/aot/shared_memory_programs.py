"""Programs whose results share memory with one another or with their input `x`, a tensor of shape (3, 4)."""

from __future__ import annotations

import torch
import torch.nn.functional as F


def of(make, use):
    """A program that makes a tensor of its input and returns what `use` makes of that tensor."""
    return lambda x: use(make(x))


def under(mode, program):
    """The program with its body in a grad mode."""

    def run(x):
        with mode():
            return program(x)

    return run


def double(x):
    return x * 2


PROGRAMS = {
    "result and view": of(double, lambda y: (y, y.view(-1))),
    "result and transpose": of(double, lambda y: (y, y.t())),
    "result and slice": of(double, lambda y: (y, y[1:])),
    "view": of(double, lambda y: y.view(-1)),
    "two views": of(double, lambda y: (y[0], y[1])),
    "two views that overlap": of(double, lambda y: (y[:2], y[1:])),
    "two equal views": of(double, lambda y: (y.view(-1), y.view(-1))),
    "one view twice": of(double, lambda y: ((v := y.view(-1)), v)),
    "result and one view twice": of(double, lambda y: (y, (v := y.view(-1)), v)),
    "result twice": of(double, lambda y: (y, y)),
    "view of a view": of(double, lambda y: (y, y[1:].t())),
    "chain of views": of(double, lambda y: (y, y[1:], y[1:][0])),
    "result and detached": of(double, lambda y: (y, y.detach())),
    "detached and result": of(double, lambda y: (y.detach(), y)),
    "detached": of(double, lambda y: y.detach()),
    "result and view of detached": of(double, lambda y: (y, y.detach().view(-1))),
    "result and detached view": of(double, lambda y: (y, y.view(-1).detach())),
    "detached twice": of(double, lambda y: (y, y.detach(), y.detach())),
    "detached and its items": of(double, lambda y: (y, (d := y.detach()), d[0], d[1])),
    "items of detached": of(double, lambda y: (y, (d := y.detach())[0], d[1])),
    "detached views": of(double, lambda y: (y[0], y[0].detach(), y.detach())),
    "data": of(double, lambda y: (y, y.data)),
    "data and its item": of(double, lambda y: (y, (d := y.data), d[0])),
    "views of data": of(double, lambda y: (y, (d := y.data)[0], d.t())),
    "alias": of(double, lambda y: (y, torch.ops.aten.alias.default(y))),
    "view_as": of(double, lambda y: (y, y.view_as(y))),
    "all of it": of(double, lambda y: (y, y[:], y[...])),
    "expanded": of(double, lambda y: (y, y.expand(2, 3, 4))),
    "squeezed, the same": of(double, lambda y: (y, y.squeeze())),
    "contiguous, the same": of(double, lambda y: (y, y.contiguous(), y.to(torch.float32))),
    "diagonal": of(double, lambda y: (y, y.diagonal())),
    "unfolded": of(double, lambda y: (y, y.unfold(0, 2, 1))),
    "as_strided": of(double, lambda y: (y, y.as_strided((2, 2), (4, 1), 1))),
    "chunks": of(double, lambda y: y.chunk(2, 1)),
    "first chunk": of(double, lambda y: y.chunk(2, 1)[0]),
    "first chunk twice": of(double, lambda y: ((c := y.chunk(2, 1)[0]), c)),
    "chunks, one twice": of(double, lambda y: ((c := y.chunk(2, 1))[0], c[0], c[1])),
    "result and chunks": of(double, lambda y: (y, *y.chunk(2, 1))),
    "item of unbind": of(double, lambda y: y.unbind(0)[1]),
    "rows": of(double, lambda y: tuple(row for row in y)),
    "transposed chunk": of(double, lambda y: y.chunk(2, 1)[0].t()),
    "chunk of a transpose": of(double, lambda y: y.t().chunk(2, 0)[0]),
    "chunks of detached": of(double, lambda y: (y, *y.detach().chunk(2, 1))),
    "view as another dtype": of(double, lambda y: ((d := y.detach()), d.view(torch.int32))),
    "real and imaginary part": lambda x: ((c := torch.complex(x, x)).real, c.imag),
    "saved result": lambda x: ((y := x.exp()), y.view(-1)),
    "results of results": of(double, lambda y: (y, y.view(-1).sin(), y.t())),
    "containers": of(double, lambda y: {"a": y, "b": [y.t(), y]}),
    "integers": lambda x: ((y := x.argsort(-1)), y.t(), y.unbind(0)),
    "no memory shared": lambda x: (x * 2, x + 1),
    "of the input: view": lambda x: x.view(-1),
    "of the input: itself and view": lambda x: (x, x.view(-1)),
    "of the input: one view twice": lambda x: ((v := x.view(-1)), v),
    "of the input: detached": lambda x: x.detach(),
    "of the input: view of detached": lambda x: x.detach().view(-1),
    "of the input: detached and item": lambda x: ((d := x.detach()), d[0]),
    "of the input: items of detached": lambda x: ((d := x.detach())[0], d[1].view(2, 2)),
    "of the input: data": lambda x: x.data,
    "of the input: data and item": lambda x: ((d := x.data), d[0]),
    "of the input: items of data": lambda x: ((d := x.data)[1], d[0]),
    "of the input: chunks": lambda x: x.chunk(2, 1),
    "of the input: first chunk": lambda x: x.chunk(2, 1)[0],
    "of the input: chunk twice": lambda x: ((c := x.chunk(2, 1)[0]), c),
    "of the input: view of an item": lambda x: x.unbind(0)[0].view(2, 2),
    "of the input: item and a new tensor": lambda x: (x[0], x * 2),
    "no_grad: result and view": under(torch.no_grad, lambda x: ((y := x + 1), y.view(-1))),
    "no_grad: view": under(torch.no_grad, lambda x: (x + 1).view(-1)),
    "no_grad: chunks": under(torch.no_grad, lambda x: (x + 1).chunk(2, 1)),
    "no_grad: view of the input": under(torch.no_grad, lambda x: x.view(-1)),
    "no_grad: chunks of the input": under(torch.no_grad, lambda x: x.chunk(2, 1)),
    "inference_mode: result and view": under(torch.inference_mode, lambda x: ((y := x + 1), y.view(-1))),
    "inference_mode: detached input": under(torch.inference_mode, lambda x: x.detach()),
    "inference_mode: chunks of the input": under(torch.inference_mode, lambda x: x.chunk(2, 1)),
}


def program(fn):
    PROGRAMS[fn.__name__] = fn
    return fn


@program
def view_under_no_grad(x):
    y = x * 2
    with torch.no_grad():
        v = y.view(-1)
    return y, v


@program
def chunk_under_no_grad(x):
    y = x * 2
    with torch.no_grad():
        c = y.chunk(2, 1)[0]
    return y, c


@program
def gradients_enabled_inside(x):
    with torch.no_grad():
        y = x * 2
        with torch.enable_grad():
            z = y.view(-1) + x.view(-1)
            return y, z, z[1:]


@program
def write_to_a_view(x):
    y = x * 2
    v = y[0]
    v.add_(1)
    return y, v


@program
def write_to_the_base(x):
    y = x * 2
    v = y[0]
    y.add_(1)
    return y, v


@program
def write_to_detached(x):
    y = x * 2
    d = y.detach()
    d.add_(1)
    return y, d


@program
def write_to_a_chunk(x):
    x.clone().chunk(2, 1)[0].add_(1)
    return x + 1


@program
def write_to_a_chunk_that_is_returned(x):
    return x.clone().chunk(2, 1)[0].add_(1)


@program
def write_to_the_last_use_of_an_item(x):
    x.clone().unbind(0)[0].zero_()
    return x.sum()


@program
def write_to_a_detached_chunk(x):
    a, b = x.clone().chunk(2, 1)
    return a.detach().add_(1), b * 2


@program
def write_under_no_grad_to_a_chunk(x):
    y = x * 2
    with torch.no_grad():
        y.chunk(2, 1)[0].add_(1)
    return y


@program
def write_to_a_view_made_under_no_grad(x):
    y = x * 2
    with torch.no_grad():
        v = y[0]
    v.add_(1)
    return y, v


@program
def write_to_the_input(x):
    with torch.no_grad():
        x.mul_(2)
    return x, x[0]


@program
def write_to_data_of_the_input(x):
    x.data.add_(1)
    return x.view(-1)


@program
def write_to_a_detached_input(x):
    d = x.detach()
    d.add_(1)
    return d, x * 1


@program
def in_place_function(x):
    y = x * 2
    z = F.relu(y, inplace=True)
    return y, z, z is y


@program
def swap(x):
    y = x * 2
    a, b = y[0], y[1]
    t = a.clone()
    a.copy_(b)
    b.copy_(t)
    return y, a, b
