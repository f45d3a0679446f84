"""Errors that eager raises are raised by compiled functions: same type, eager's message first, then operator, operands
and the user's line."""

from __future__ import annotations

import warnings

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

import pyframe

OUT, BELOW, LAST = (torch.tensor(index) for index in ([0, 7], [-9, 0], [-1, 0]))
LOOKUPS = {
    "gather": lambda x, i: torch.gather(x[:, 0] + 1, 0, i) * 2,
    "index_select": lambda x, i: torch.index_select(x + 1, 0, i) * 2,
    "embedding": lambda x, i: F.embedding(i, x + 1) * 2,
    "index": lambda x, i: (x + 1)[i] * 2,
    "index_of_columns": lambda x, i: (x + 1)[:, i] * 2,
    "index_put": lambda x, i: (x + 1).index_put((i,), torch.ones(2, 4)) * 2,
    "scatter": lambda x, i: (x[:, 0] + 1).scatter(0, i, 1.0) * 2,
    "scatter_add": lambda x, i: (x[:, 0] + 1).scatter_add(0, i, torch.ones(2)) * 2,
    "index_add": lambda x, i: (x + 1).index_add(0, i, torch.ones(2, 4)) * 2,
    "index_copy": lambda x, i: (x + 1).index_copy(0, i, torch.ones(2, 4)) * 2,
    "take": lambda x, i: torch.take(x[:, 0] + 1, i) * 2,
    "cross_entropy": lambda x, i: F.cross_entropy(x[:2] * 2, i),
}
A, B = torch.tensor([4, 5]), torch.tensor([2, 0])
DIVISIONS = {
    "floordiv": lambda a, b: (a + 1) // b,
    "truncdiv": lambda a, b: torch.div(a + 1, b, rounding_mode="trunc"),
    "remainder": lambda a, b: (a + 1) % b,
    "fmod": lambda a, b: torch.fmod(a + 1, b),
    "by_a_constant": lambda a, b: (a + b) // 0,
    "of_a_constant": lambda a, b: 7 // (b * 1),
    "negative_power": lambda a, b: (a + b) ** -1,
}
EMPTY = {
    name: lambda x, fn=getattr(torch, name): fn(x * 2, dim=1)
    for name in ("max", "min", "argmax", "argmin", "amax", "amin", "median", "mode", "aminmax")
}




def _repeated(x):
    return (x + 1).expand(3, 4).mul_(2)


def _shifted(x):
    y = x + 1
    y[0, 1:].add_(y[0, :-1])
    return y


def _shifted_rows(x):
    y = x + 1
    y[1:] = y[:-1]
    return y


AT = torch.tensor([2, 0, 1])
OVERLAPPING = {  # `y` is written and read
    "by_its_first_element": lambda y: y.mul_(y[0, 0]),
    "items_by_index": lambda y: y.__setitem__(AT, y),
    "indices_written": lambda y: (i := AT.clone()).index_fill_(0, i, 3),
    "index_put": lambda y: y.index_put_((AT,), y, accumulate=True),
    "index_copy": lambda y: y.index_copy_(0, AT, y),
    "index_add": lambda y: y.index_add_(0, AT, y),
    "scatter": lambda y: y.scatter_(0, AT[:, None].expand(3, 3), y),
    "scatter_reduce": lambda y: y.scatter_reduce_(0, AT[:, None].expand(3, 3), y, "amax"),
    "out_of_index_select": lambda y: torch.index_select(y, 0, AT, out=y),
}
OTHERS = {
    **{name: (lambda x, fn=fn: fn(x + 1), torch.randn(3, 3)) for name, fn in OVERLAPPING.items()},
    "shifted_rows": (_shifted_rows, torch.randn(3, 3)),
    "unpooled_to_the_next_plane": (lambda x: F.max_unpool2d(x * 2, torch.tensor([[[4]], [[3]]]), 2), torch.randn(2, 1, 1)),
    "view_of_more_than_the_storage": (lambda x: x.as_strided((3,), (2,)) + 1, torch.randn(4)),
    "element_more_than_once": (_repeated, torch.randn(1, 4)),
    "partly_the_same_memory": (_shifted, torch.randn(1, 8)),
    "negative_size": (lambda x: x.new_zeros(-1) + x, torch.randn(3)),
    "shapes": (lambda x: x * 2 + torch.ones(4), torch.randn(3)),
    "product_of_shapes": (lambda x: (x + 1) @ torch.ones(4, 2), torch.randn(3, 3)),
    "product_of_dtypes": (lambda x: x @ torch.ones(3, 2, dtype=torch.float64), torch.randn(3, 3)),
    "dtype_of_a_write": (lambda x: (x + 1).add_(1.5), torch.ones(3, dtype=torch.int64)),
    "leaf": (lambda x: x.add_(1), torch.randn(3).requires_grad_()),
    "no_factor": (lambda x: torch.linalg.cholesky(-x), torch.eye(3)),
    "no_memory": (lambda x: torch.empty(10**15) + x[0], torch.randn(3)),
}


def outcome(fn, *args):
    try:
        return fn(*args)
    except Exception as error:  # noqa: BLE001  what is raised is compared
        return error


def check(fn, *args):
    expected = outcome(fn, *(x.clone() if not x.requires_grad else x for x in args))
    assert isinstance(expected, Exception)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        got = outcome(pyframe.compile(fn), *args)
        assert type(got) is type(expected), (expected, got)

        def handles(*args):
            try:
                return fn(*args)
            except Exception as error:  # noqa: BLE001
                return type(error).__name__

        caught = pyframe.compile(handles)(*args)
    assert caught == type(expected).__name__
    return expected, got


@pytest.mark.parametrize("bad", ["out", "below"])
@pytest.mark.parametrize("name", LOOKUPS)
def test_indices_out_of_bounds(name, bad):
    _, got = check(LOOKUPS[name], torch.randn(4, 4), OUT if bad == "out" else BELOW)
    assert __file__ in str(got)


@pytest.mark.parametrize("name", sorted(LOOKUPS.keys() - {"index", "index_of_columns", "index_put", "take", "index_add"}))
def test_negative_indices_where_they_are_errors(name):
    fn = LOOKUPS[name]
    args = torch.randn(4, 4), LAST
    expected = outcome(fn, *args)
    if isinstance(expected, Exception):
        check(fn, *args)
    else:
        torch.testing.assert_close(pyframe.compile(fn)(*args), expected)


@pytest.mark.parametrize("name", ["index", "index_of_columns", "index_put", "take"])
def test_negative_indices_where_they_count_from_the_end(name):
    args = torch.randn(4, 4), LAST
    torch.testing.assert_close(pyframe.compile(LOOKUPS[name])(*args), LOOKUPS[name](*args))


@pytest.mark.parametrize("index", [OUT, BELOW, LAST], ids=["out", "below", "last"])
def test_what_eager_makes_of_indices_out_of_bounds(index):
    def take(x, i):  # takes them modulo the size, on the versions where it raises nothing
        return torch.take_along_dim(x[:, 0] + 1, i, 0) * 2

    args = torch.randn(4, 4), index
    expected, got = outcome(take, *args), outcome(pyframe.compile(take), *args)
    assert type(got) is type(expected)
    if isinstance(expected, torch.Tensor):
        torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.int8])
@pytest.mark.parametrize("name", DIVISIONS)
def test_integers_divided_by_zero(name, dtype):
    check(DIVISIONS[name], A.to(dtype), B.to(dtype))


def test_zeros_that_nobody_divides_by():
    def padded(a, b):
        return F.pad(a // b, [1, 2]) + 1

    a, b = torch.arange(1, 12), torch.arange(1, 12)
    plan = pyframe.compile(padded, options={"strict": True})
    for _ in range(2):
        assert torch.equal(plan(a, b), padded(a, b))
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        plan(a, b - 3)


@pytest.mark.parametrize("name", EMPTY)
def test_extremes_of_nothing(name):
    check(EMPTY[name], torch.zeros(3, 0))


@pytest.mark.parametrize("name", OTHERS)
def test_other_errors(name):
    check(*OTHERS[name])


def second(x, table, i):
    y = torch.sin(x)
    return y + table[i].sum()  # the lookup


def test_a_view_that_grows_beyond_the_storage():
    """The first sizes fit; the last ones do not, and eager raises an error instead of reading other memory."""
    for fn, sizes in (
        (lambda x, n: torch.ones(4, 4).as_strided((n,), (1,)) + x[0], (3, 5, 7, 17)),
        (lambda x, n: x.as_strided((3,), (2,)) + 1, (6, 7, 9, 4)),
    ):
        compiled = pyframe.compile(fn)
        for n in sizes[:-1]:
            x = torch.randn(n)
            assert torch.equal(compiled(x, n), fn(x, n))
        with pytest.warns(UserWarning, match="more memory"), pytest.raises(RuntimeError, match="out of bounds"):
            compiled(torch.randn(sizes[-1]), sizes[-1])
    storage = torch.randn(20)
    compiled = pyframe.compile(lambda x: x.as_strided((10,), (1,)) + 1)
    with pytest.warns(UserWarning, match="more memory"):
        assert torch.equal(compiled(storage[:4]), storage[:10] + 1)
    with pytest.raises(RuntimeError, match="out of bounds"):
        compiled(torch.randn(4))


def test_the_message_names_operator_index_size_and_line():
    with open(__file__) as source:
        line = next(n for n, text in enumerate(source, 1) if text.rstrip().endswith("# the lookup"))
    args = torch.randn(3), torch.randn(4, 2), OUT
    eager = outcome(second, *args)
    got = outcome(pyframe.compile(second), *args)
    text = str(got)
    assert text.startswith(str(eager)) and "getitem(float32[4, 2], int64[2] with values from 0 to 7)" in text
    assert f"{__file__}:{line}: return y + table[i].sum()" in text


def test_in_training_too():
    table = torch.randn(4, 3, requires_grad=True)
    with pytest.raises(IndexError, match="index out of range in self"):
        pyframe.compile(lambda t, i: F.embedding(i, t * 2).sum())(table, OUT)


def test_memory_errors_are_caught_as_such():
    def tries(x):
        try:
            return torch.empty(10**15) + x
        except (MemoryError, RuntimeError):
            return x * 2

    x = torch.randn(3)
    assert torch.equal(pyframe.compile(tries)(x), x * 2)


def test_backward_twice_and_changed_tensors():
    x = torch.randn(3, requires_grad=True)
    loss = pyframe.compile(lambda x: (x.sin() * x).sum())(x)
    loss.backward()
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()
    y = pyframe.compile(lambda x: x.exp())(x)
    y.detach().mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
