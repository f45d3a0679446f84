"""Second calls after something that the first one read has changed: results are those of eager."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

import pyframe

x = torch.arange(6.0).reshape(2, 3)


def compiled(fn):
    return pyframe.compile(fn, backend="eager", options={"recompile_limit": 16})


def outcome(fn, *args):
    try:
        return fn(*args)
    except Exception as error:  # noqa: BLE001  whichever it is, is compared
        return type(error)


def test_whether_a_tensor_is_a_view_is_guarded():
    def f(a):
        return a + 1 if a._is_view() else a - 1

    fn, base = compiled(f), torch.arange(8.0)
    for each in (base, base[2:], base.clone(), base.view(8), torch.stack([base, base]).unbind()[1]):
        torch.testing.assert_close(fn(each), f(each))


@pytest.mark.parametrize("name", [n for n in ("const_data_ptr", "data_ptr") if hasattr(torch.Tensor, n)])
def test_addresses_are_those_of_the_tensor(name):
    def f(a):
        return a + 1, getattr(a, name)()

    for each in (x, x.clone()):
        assert compiled(f)(each)[1] == f(each)[1]


@pytest.mark.parametrize("dtype", [float, int, bool, complex])
def test_classes_of_numbers_are_dtypes(dtype):
    def f(a):
        return a.to(dtype), torch.zeros(2, dtype=dtype), a.type(torch.float64).to(dtype=dtype)

    for got, expected in zip(compiled(f)(x), f(x), strict=True):
        torch.testing.assert_close(got, expected)


def test_isinstance_of_the_exact_class_asks_no_metaclass():
    class Meta(type):
        def __instancecheck__(cls, obj):
            return False

    class Made(metaclass=Meta):
        pass

    class Derived(Made):
        pass

    def f(a, obj):
        return a + 1 if isinstance(obj, Made) else a - 1, isinstance(obj, (int, Made))

    fn = compiled(f)
    for obj in (Made(), Derived(), 3):
        got, expected = fn(x, obj), f(x, obj)
        torch.testing.assert_close(got[0], expected[0])
        assert got[1] == expected[1]
    Meta.__instancecheck__ = lambda cls, obj: True
    for obj in (Made(), Derived(), 3):
        assert fn(x, obj)[1] == f(x, obj)[1]


def test_parts_of_numpy_functions_are_guarded():
    table = np.array([1.0, 5.0, 2.0])

    def f(a):
        return a * float(np.max([1.0, 2.0])), np.sum(table)

    fn, written = compiled(f), np.max.__wrapped__
    torch.testing.assert_close(fn(x)[0], f(x)[0])
    defaults, code = written.__defaults__, written.__code__
    try:
        written.__defaults__ = None
        assert outcome(fn, x) is outcome(f, x) is TypeError
        written.__defaults__ = defaults
        written.__code__ = (lambda *args, **kwargs: 7.0).__code__
        torch.testing.assert_close(fn(x)[0], f(x)[0])
    finally:
        written.__defaults__, written.__code__ = defaults, code
    torch.testing.assert_close(fn(x)[0], x * 2)


def test_arrays_are_shared_by_torchs_own_function(monkeypatch):
    table = np.array([1.0, 2.0, 3.0], dtype=np.float32)

    def f(a):
        return a * torch.from_numpy(table), table + 1

    fn = compiled(f)
    torch.testing.assert_close(fn(x)[0], f(x)[0])
    own = torch.from_numpy
    monkeypatch.setattr(torch, "from_numpy", lambda array: own(array) * 2)
    for _ in range(2):
        got, expected = fn(x), f(x)
        torch.testing.assert_close(got[0], expected[0])
        np.testing.assert_array_equal(got[1], expected[1])


def test_what_keeps_repr_from_recursing_is_read():
    @dataclasses.dataclass
    class Settings:
        n: int = 3

    def f(a):
        return a * len(repr(Settings()))

    fn = compiled(f)
    torch.testing.assert_close(fn(x), f(x))
    cells = dict(zip(Settings.__repr__.__code__.co_freevars, Settings.__repr__.__closure__, strict=True))
    cells["repr_running"].cell_contents = frozenset()
    assert outcome(fn, x) is outcome(f, x) is AttributeError
