"""Cells of the compiled function's own closure that a function among the arguments shares with it, or does not."""

import itertools

import torch

import pyframe


def pair():
    n = 0

    def g(x):
        nonlocal n
        n = 1
        return x * n

    def f(x, h):
        nonlocal n
        n = 2
        y = h(x)
        m, n = n, 0
        return y + m

    return f, g


def readers():
    n = 3.0

    def g(x):
        return x * n

    def f(x, h):
        nonlocal n
        n = 2.0
        y = h(x)
        n = 3.0
        return y

    return f, g


def returns_of(make, order, compiled):
    """What the calls return, in `order`, with a function of the same closure (True) and one of another (False)."""
    f, shared = make()
    _, other = make()
    if compiled:
        f = pyframe.compile(f, backend="eager")
    found = []
    for same in order:
        if make is pair:
            other.__closure__[0].cell_contents = 0
        found.append(f(torch.ones(2), shared if same else other).tolist())
    return found


def test_whether_a_cell_of_the_root_is_shared_with_an_argument_is_guarded():
    for make, order in itertools.product((pair, readers), ((True, False) * 2, (False, True) * 2)):
        assert returns_of(make, order, True) == returns_of(make, order, False), (make.__name__, order)
