"""Arrays of numpy in captured code: one graph of tensors that share their memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from language_support import Table
from numpy_support import check_one_graph, same

import pyframe
from pyframe.errors import Unsupported

case = Table()
A = np.arange(12.0).reshape(3, 4)


@case(A)
def elementwise(a):
    return np.sin(a) + 1, a * 2 - a / 3, np.maximum(a, 3.0), -a, a**2, a > 3, np.where(a > 3, a, 0.0), np.exp(-a)


@case(A)
def reductions(a):
    return a.sum(), a.mean(axis=0), np.max(a, axis=1), a.std(), np.argmax(a), a.sum() + 1, np.prod(a[1:2])


@case(A)
def shapes(a):
    return a.shape, a.ndim, a.size, a.T, a.reshape(2, 6), a[1], a[:, ::2], a[..., None], len(a), a.dtype, a.ravel(), a.nbytes


@case(A)
def joined(a):
    return np.concatenate([a, a]), np.stack([a, a], axis=1), np.dot(a, a.T), a @ a.T, np.linalg.norm(a), [row.sum() for row in a]


@case()
def made(x):
    a = np.array([1.0, 2.0, 3.0])
    return np.zeros(3), np.ones((2, 2)), np.arange(4), np.linspace(0, 1, 5), np.full((2,), 7), np.eye(2), x + torch.from_numpy(a).float()


@case()
def types(x):
    a = np.zeros(3, dtype=np.float32)
    return a.dtype, a.astype(np.int64), np.arange(3, dtype="int32"), a.dtype == np.float32, x + 1, isinstance(a, np.ndarray)


@case(A.copy())
def changed(a):
    a += 1
    a[0] = 5.0
    a[1:, 0] *= 2
    return a.sum()


@case()
def between(x):
    a = x.numpy()
    b = np.cos(a) * 2
    return torch.from_numpy(b) + x, a[0], torch.as_tensor(a) * 2


@case([A, {"k": A}])
def nested(held):
    return held[0] + held[1]["k"], held[0] is held[1]["k"]


@pytest.mark.parametrize("row", case, ids=Table.name)
def test_one_graph(row: Any) -> None:
    check_one_graph(*row)


def test_results_share_memory_with_what_came_in() -> None:
    a = np.zeros(4)
    b = pyframe.compile(lambda a: a.reshape(2, 2), backend="eager", fullgraph=True)(a)
    b[0, 0] = 1
    assert a[0] == 1


def test_other_arrays_are_captured_again() -> None:
    compiled = pyframe.compile(lambda a: np.sin(a) + 1, backend="eager", fullgraph=True)
    for a in (A, A.astype(np.float32), A[0], A[::2, ::2], np.arange(3)):
        assert same(compiled(a), np.sin(a) + 1)
    pyframe.reset()


def test_arrays_that_no_tensor_can_share_break() -> None:
    for a in (np.array(["a", "b"]), A[::-1]):
        compiled = pyframe.compile(lambda a, x: (a[0], x + 1), backend="eager")
        assert same(compiled(a, torch.ones(1)), (a[0], torch.full((1,), 2.0)))


def test_a_number_read_from_an_array_breaks() -> None:
    def reads(a):
        return np.sin(a) * float(a.sum())

    with pytest.raises(Unsupported):
        pyframe.compile(reads, backend="eager", fullgraph=True)(A)
    assert same(pyframe.compile(reads, backend="eager")(A), reads(A))


def test_arrays_through_the_compiler() -> None:
    def fn(a):
        return (np.sin(a) * 2 + a.sum(axis=0)).astype(np.float32)

    assert same(pyframe.compile(fn, fullgraph=True)(A), fn(A))


def test_types_of_elements_are_those_of_numpy() -> None:
    """Where torch's version of a function gives another type, numpy itself is called, at a break."""

    def fn(a):
        return a / 2, np.sqrt(a), np.cumsum(a), a * np.float64(2), a + np.int64(1), a.mean(), a.sum(), a + 1

    for dtype in (np.int8, np.int64, np.float32, np.uint8, np.bool_):
        a = np.ones(3, dtype)
        pyframe.reset()
        assert same(pyframe.compile(fn, backend="eager")(a), fn(a)), dtype


@pytest.mark.parametrize("to_tensor", [torch.from_numpy, torch.as_tensor])
def test_a_tensor_of_an_array_is_another_object_on_the_same_memory(to_tensor) -> None:
    def added(x):
        return to_tensor(x.numpy()).add_(1), to_tensor(x.numpy())

    x = torch.ones(3)
    first, second = pyframe.compile(added)(x)
    assert first is not x and second is not first
    assert first.data_ptr() == second.data_ptr() == x.data_ptr()
    assert torch.equal(x, torch.full((3,), 2.0))


def test_copies_of_arrays() -> None:
    def copied(a):
        y = torch.tensor(a)
        y.add_(1)
        return y, torch.tensor(a.T), torch.tensor(a[1]), torch.tensor(a.sum()), torch.tensor(a, dtype=torch.int8)

    a = np.arange(6).reshape(2, 3)
    want = copied(a)
    for backend in ("eager", "inductor"):
        got = pyframe.compile(copied, backend=backend, fullgraph=True)(a)
        assert same(got, want)
        assert [y.stride() for y in got] == [y.stride() for y in want]
    assert a.sum() == 15


def test_tensors_of_arrays_are_created_on_the_default_device() -> None:
    def inside(a):
        with torch.device("meta"):
            return torch.tensor(a).device.type, torch.as_tensor(a).device.type, torch.from_numpy(a).device.type

    def outside(a):
        return torch.tensor(a).device.type, torch.as_tensor(a).device.type, torch.from_numpy(a).device.type

    a = np.arange(3.0)
    assert pyframe.compile(inside, backend="eager")(a) == inside(a) == ("meta", "meta", "cpu")
    compiled = pyframe.compile(outside, backend="eager")
    assert compiled(a) == ("cpu", "cpu", "cpu")
    with torch.device("meta"):
        assert compiled(a) == outside(a) == ("meta", "meta", "cpu")


VIEWS_AND_COPIES = {
    "reversed": lambda a: a[::-1], "reversed_columns": lambda a: a[:, ::-1], "reversed_part": lambda a: a[2:0:-1, 1],
    "flip": lambda a: np.flip(a), "rot90": lambda a: np.rot90(a), "transposed": lambda a: a.T, "row": lambda a: a[1],
    "ravel": lambda a: a.ravel(), "ravel_of_transposed": lambda a: a.T.ravel(), "flatten": lambda a: a.flatten(),
    "astype": lambda a: a.astype(np.float64), "astype_uncopied": lambda a: a.astype(np.float64, copy=False),
    "rows": lambda a: a[[0, 1]], "mask": lambda a: a[a > 1], "split": lambda a: np.split(a, 3)[1],
    "element": lambda a: a[..., 0, 0], "tuple": lambda a: a[(1,)],
}  # fmt: skip


@pytest.mark.parametrize("rows", [3, 30_000], ids=["small", "large"])
@pytest.mark.parametrize("name", VIEWS_AND_COPIES)
def test_views_and_copies_are_those_of_numpy(name: str, rows: int) -> None:
    """What is written to the result is written to the argument as in NumPy, whose functions reverse arrays in place
    and copy in `astype` and `flatten`."""
    select = VIEWS_AND_COPIES[name]

    def writing(a):
        part = select(a)
        part[...] = -5.0
        return a + 0

    def selecting(a):
        return select(a)

    for fn in (writing, selecting):
        arrays = [np.arange(rows * 3.0).reshape(rows, 3) for _ in range(2)]
        results = [run(a) for run, a in zip((fn, pyframe.compile(fn)), arrays, strict=True)]
        assert same(*results) and same(*arrays)
        shared = [np.shares_memory(result, a) for result, a in zip(results, arrays, strict=True)]
        assert shared[0] == shared[1]


def test_a_number_read_before_a_write_is_kept() -> None:
    def program(a):
        first, view = a[0], a[..., 1]
        a += 1
        return first, view

    results = [run(np.arange(3.0)) for run in (program, pyframe.compile(program))]
    assert same(*results)


FIVE = np.arange(5.0)
OTHER_THAN_TORCH = {
    "floor_by_zero": (lambda a: a // 0, np.arange(3)),
    "remainder_by_array": (lambda a: a % (a - 1), np.arange(3)),
    "negative_power": (lambda a: 2**a, np.arange(-1, 3)),
    "power_of_integers": (lambda a: a**2, np.arange(-1, 3)),
    "median_of_half_precision": (lambda a: np.median(a), FIVE.astype(np.float16)),
    "percentile_of_integers": (lambda a: np.percentile(a, 30), np.arange(5)),
    "percentiles": (lambda a: np.percentile(a, [30, 60]), FIVE),
    "histogram": (lambda a: np.histogram(a, 3)[0], np.arange(5)),
    "heaviside": (lambda a: np.heaviside(a, 0.5), np.arange(3)),
    "range_without_step": (lambda a: np.ogrid[0:2] + a, np.arange(2)),
    "average": (lambda a: np.average(a, weights=a + 1), FIVE),
    "bits_of_floats": (lambda a: a & 1, FIVE),
    "written_while_read": (lambda a: a.__setitem__(slice(1, None), a[:-1]) or a + 0, FIVE),
    "read_only": (lambda a: np.broadcast_to(a, (2, 5)).__setitem__(0, 1.0), FIVE),
    "masked": (lambda a: a[a > 1] + 1, FIVE),
}


@pytest.mark.parametrize("name", OTHER_THAN_TORCH)
def test_where_functions_of_torch_differ_numpy_is_called(name: str) -> None:
    fn, array = OTHER_THAN_TORCH[name]
    arrays = [array.copy(), array.copy()]
    found: list[Any] = []
    for run, a in zip((fn, pyframe.compile(fn)), arrays, strict=True):
        try:
            found.append(run(a))
        except (TypeError, ValueError) as error:
            found.append((type(error).__name__, str(error)))
    assert same(*found) and same(*arrays)


ABOUT_MEMORY = {
    "base": lambda a: (a.base is None, a.base is OWNER[0]),
    "strides": lambda a: (a.strides, a.T.strides),
    "flags": lambda a: (a.flags["OWNDATA"], a.flags.c_contiguous, a.flags.writeable),
}
OWNER = [A.copy()]


@pytest.mark.parametrize("name", ABOUT_MEMORY)
def test_attributes_of_the_memory_are_those_of_the_array(name: str) -> None:
    program = ABOUT_MEMORY[name]
    for array in (OWNER[0], OWNER[0][1:], np.asfortranarray(A)):
        assert pyframe.compile(lambda a: (program(a), a + 1)[0], backend="eager")(array) == program(array)
