"""NumPy's functions, dtypes and numbers in captured code: one graph, and values, dtypes and types as NumPy's."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from language_support import Table
from numpy_support import check_one_graph, same

import pyframe
from pyframe.metrics import counters

case = Table()
A = np.arange(12.0).reshape(3, 4)
INTS = np.arange(12).reshape(3, 4)
X = torch.arange(6.0).reshape(2, 3)
DTYPE = np.dtype("f4")
SCALE = np.float32(2)


@case(X)
def forms_of_dtypes(x):
    made = np.array([1, 2], np.float32), np.array([1, 2], "float32"), np.array([1, 2], dtype=np.dtype("f4"))
    return made, np.array([1, 2], dtype=float), np.array([1.5], dtype=int), np.zeros(2, "<i2"), np.ones(2, DTYPE), x + 1


@case(A)
def conversions(a):
    forms = np.float32, "int32", int, float, bool, np.dtype("i2"), "f2", np.complex64, "?", DTYPE
    return [a.astype(form) for form in forms], a.astype(dtype=np.int8), a.astype(np.float64, copy=False) is a


@case(A)
def about_dtypes(a):
    kinds = a.dtype.kind, a.dtype.itemsize, a.dtype.name, a.dtype.type, a.dtype is np.dtype("f8"), DTYPE.itemsize
    found = np.result_type(a, np.int64), np.promote_types("f4", "i8"), np.can_cast(np.int32, np.int64)
    return kinds, found, np.issubdtype(a.dtype, np.floating), np.finfo(a.dtype).max, np.iinfo(np.int32).max, a + 1


@case(A)
def arrays_of_parts(a):
    return np.array([a[0], a[1]]) * 2, np.array([a[0, 0], a[1, 1], 3.0]), np.array([a[0], [1, 2, 3, 4]], np.float32)


@case(A)
def the_same_array(a):
    b = np.asarray(a)
    b[0] = 7
    return b is a, np.asarray(a, a.dtype) is a, np.array(a) is a, np.array(a, copy=False) is a, np.asanyarray(a) is a


@case(np.array([[3.0, 1.0, 0.5], [1.0, 4.0, -1.0], [0.5, -1.0, 2.0]]))
def factors_of_matrices(a):
    u, s, v = np.linalg.svd(a)
    found = np.linalg.svd(a, full_matrices=False)
    q, r = np.linalg.qr(a)
    w, vectors = np.linalg.eigh(a)
    sign, log = np.linalg.slogdet(a)
    parts = found.S, found[0] * found.S @ found.Vh, np.linalg.qr(a).R, len(found), np.linalg.eigh(a).eigenvalues
    return (u * s) @ v, q @ r, (vectors * w) @ vectors.T, sign * np.exp(log), parts, isinstance(found, tuple)


@case(X)
def other_constructors(x):
    return np.asanyarray([1.0, 2]), np.ascontiguousarray([[1, 2]]), np.array(x), np.asarray(x), np.array([])


@case(X)
def known_elements(x):
    for rate in [v.item() for v in np.linspace(0, 0.5, 3)]:
        x = x * (1 - rate)
    ends = np.cumsum([0, 1, 2])
    order = np.argsort([2, 0, 1])
    parts = [x[:, first:last] for first, last in zip(ends[:-1], ends[1:], strict=True)]
    return parts, x[:, order.tolist()], x[:, list(order)], np.array([1, 2]).tolist(), sum(np.arange(4))


@case(X)
def branches_on_known_elements(x):
    return x + 1 if np.array([1, 2]).sum() > 2 else x - 1


@case(X)
def elements_read_at_run_time(x):
    a = x.numpy()
    return a.tolist(), float(a.sum()) * 2, int(a[0, 1]) + 1, a[1, 1].item(), a[:1, :1].item()


@case(X)
def indices_of_tensors(x):
    y = x.clone()
    y[np.array([0]), np.int64(1) :] = 9.0
    return y, x[np.int64(0)], x[:, np.int64(1) :], x[np.array([0, 1])], x[np.array([True, False])], x * SCALE


@case(INTS)
def integers(a):
    return abs(a - 3), divmod(a, 3), a / 2, np.sqrt(a), np.sin(a), a / (a + 1), np.true_divide(a, 2)


@case(A)
def methods_of_ufuncs(a):
    reduced = np.add.reduce(a, axis=0), np.maximum.reduce(a), np.multiply.reduce(a, axis=None)
    return reduced, np.multiply.outer(a[0], a[1]), np.add.accumulate(a, axis=1)


@case(A, INTS % 3 == 0)
def where_and_out(a, chosen):
    out = np.full_like(a, 5)
    found = np.add(a, 1, where=chosen, out=out)
    return found, found is out, np.multiply(a, 2, out=a) is a, np.add(a, a, a) is a


@case(A)
def lists_and_tuples(a):
    return np.split(a, 2, axis=1), np.array_split(a, 2), np.pad(a, 1), np.pad(a, ((1, 0), (0, 2)), constant_values=3.0)


@case(A)
def of_constants_alone(a):
    return np.identity(2), np.tri(3), np.logspace(0, 1, 3), np.fft.fftfreq(4), a[np.ix_([0, 2], [1, 3])]


@case(A)
def views(a):
    whole, bits = a.view(), a.view(np.int64)
    whole[0] = 1.0
    return a, bits, a.strides


@pytest.mark.parametrize("row", case, ids=Table.name)
def test_one_graph(row: Any) -> None:
    check_one_graph(*row)


def test_slices_of_numpy_integers_that_cross_a_break() -> None:
    """Generated code has Python's integers in the place of NumPy's, whose text is no expression there."""

    def program(x, part):
        print(end="")
        return x[part] + 1, x[(part, part)] * 2

    part = slice(np.int64(1), np.int64(3))
    x = torch.arange(9.0).reshape(3, 3)
    assert same(pyframe.compile(program, backend="eager")(x, part), program(x, part))


@pytest.mark.parametrize("dtype", [">f4", ">i8"])
def test_arrays_of_another_byte_order_stay_numpys(dtype: str) -> None:
    def program(a):
        return np.zeros(3, dtype=dtype), a + 1, a.astype(dtype)

    for a in (np.arange(3.0), np.arange(3, dtype=dtype)):
        pyframe.reset()
        got, want = pyframe.compile(program, backend="eager")(a), program(a)
        assert same(got, want) and [x.dtype.byteorder for x in got] == [x.dtype.byteorder for x in want]


def test_numpys_own_code_is_not_captured_at_a_break() -> None:
    """A function that no graph can hold is one break, however much Python code NumPy runs for it."""

    def program(a):
        return np.median(a, axis=(0, 1)), np.percentile(a, [30, 60]), np.polyval([1, 2], a), a + 1

    pyframe.reset()
    assert same(pyframe.compile(program, backend="eager")(A), program(A))
    assert sum(counters["graph_breaks"].values()) <= 3 and counters["graphs"] <= 2


def _with_nan(array):
    array = array.copy()
    array[1, 2] = np.nan
    return array


ARRAYS = (A, A[::-1] * 0.3, A.astype(np.float32) / 7, A[:, :3], _with_nan(A), INTS, INTS[:, :3] ** 3)


@pytest.mark.parametrize("number", range(len(ARRAYS)))
def test_order_statistics_are_in_the_graph(number) -> None:
    def program(a):
        medians = np.median(a), np.median(a, axis=0), np.median(a, -1, keepdims=True), np.median(a, keepdims=True)
        if a.dtype.kind == "i":
            return medians
        return medians, np.percentile(a, 30), np.percentile(a, 62.5, axis=0), np.quantile(a, 0.9, 1, keepdims=True)

    array = np.ascontiguousarray(ARRAYS[number])
    pyframe.reset()
    assert same(pyframe.compile(program, backend="eager", fullgraph=True)(array), program(array))
    assert same(pyframe.compile(program)(array), program(array))


def test_medians_overflow_as_numpys() -> None:
    def program(a):
        return np.median(a), np.median(a, axis=0)

    for values in ([1.7e308, 1.7e308], [-np.inf, np.inf], [np.inf, np.inf, 1.0]):
        array = np.array(values)
        with np.errstate(all="ignore"):
            assert same(pyframe.compile(program, backend="eager")(array), program(array))


def test_examples_of_functions_do_not_warn() -> None:
    """Whether torch's function gives what NumPy's gives is tried on small arrays, about which it may warn."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        pyframe.compile(lambda a: (np.cov(a), np.corrcoef(a)), backend="eager")(A + 1 / (A + 1))
    assert [str(each.message) for each in seen] == []
