"""Second calls after something that the first one read has changed: results are those of eager."""

from __future__ import annotations

import copy
import dataclasses
import enum
import functools
import itertools

import numpy as np
import pytest
import torch

import pyframe
from pyframe.metrics import counters

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


# ---- attributes of torch.Tensor, which captures go by without reading them ----


def replace_hash(patch):
    patch.setattr(torch.Tensor, "__hash__", None)


def replace_dtype(patch):
    patch.setattr(torch.Tensor, "dtype", 82)


def replace_mean(patch):
    patch.setattr(torch.Tensor, "mean", lambda self, *args, **kwargs: torch.ones(()) * 7)


def replace_add(patch):
    patch.setattr(torch.Tensor, "__add__", lambda self, other: 5)


def add_operator_to_parameters(patch):
    patch.setattr(torch.nn.Parameter, "__add__", lambda self, other: 6)


@pytest.mark.parametrize(
    "change", [replace_hash, replace_dtype, replace_mean, replace_add, add_operator_to_parameters],
    ids=lambda c: c.__name__,
)  # fmt: skip
@pytest.mark.parametrize("calls_before", [0, 2])
def test_attributes_of_tensors_replaced(change, calls_before):
    weight = torch.nn.Parameter(torch.ones(3))

    def f(a, array):
        return {a: 1}[a], a.dtype, a.mean(), np.mean(array), a + 1, weight + 1

    fn, array = compiled(f), np.arange(3.0)
    for _ in range(calls_before):
        fn(x, array)
    with pytest.MonkeyPatch.context() as patch:
        change(patch)
        got, again, expected = outcome(fn, x, array), outcome(fn, x, array), outcome(f, x, array)
    assert repr(got) == repr(again) == repr(expected)
    assert repr(fn(x, array)) == repr(f(x, array))


def test_an_attribute_that_no_graph_uses_may_change():
    fn = compiled(lambda a: a + 1)
    fn(x)
    counters.clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.Tensor, "mark", 3, raising=False)
        patch.setattr(torch.Tensor, "__repr__", lambda self: "a tensor")
        fn(x)
    fn(x)
    assert not counters["recompiles"]


# ---- classes and functions of libraries that have models ----


def replace_a_method(patch):
    patch.setattr(torch.no_grad, "__init__", int)


def replace_a_global(patch):
    patch.setattr(torch.autograd.grad_mode, "torch", np)


def replace_a_default(patch):
    patch.setitem(np.mean.__wrapped__.__kwdefaults__, "where", None)


def delete_a_default(patch):
    patch.delitem(np.mean.__wrapped__.__kwdefaults__, "where")


def replace_a_method_of_a_range(patch):
    patch.setattr(torch.profiler.record_function, "__enter__", lambda self: 4)


@pytest.mark.parametrize(
    "change", [replace_a_method, replace_a_global, replace_a_default, delete_a_default, replace_a_method_of_a_range],
    ids=lambda c: c.__name__,
)  # fmt: skip
def test_parts_of_models_replaced(change):
    def f(a, array):
        with torch.no_grad():
            b = a * 2
        with torch.profiler.record_function("range") as entered:
            return b.requires_grad, np.mean(array), np.mean([1.0, 2.0]), type(entered)

    fn, array = compiled(f), np.arange(3.0)
    fn(x, array), fn(x, array)
    with pytest.MonkeyPatch.context() as patch:
        change(patch)
        got, again, expected = outcome(fn, x, array), outcome(fn, x, array), outcome(f, x, array)
    assert repr(got) == repr(again) == repr(expected)


def test_a_copied_class_is_the_same_class():
    def f(a):
        return torch.nn.Parameter(a).mul(2).detach()

    fn = compiled(f)
    fn(x)
    copy.copy(torch.nn.Parameter(x))  # `copyreg` notes the names of slots in the class
    counters.clear()
    fn(torch.ones(5))
    assert not counters["graph_breaks"]


# ---- functions that keep their results ----


def test_cleared_and_bounded_caches():
    made = itertools.count(1)

    @functools.lru_cache
    def number(key):
        return next(made)

    @functools.lru_cache(maxsize=1)
    def held(key, *, scale=1):
        return [next(made) * scale]

    @functools.lru_cache(maxsize=0)
    def none_kept(key):
        return next(made)

    def f(a):
        return a + number("a") + held(1, scale=2)[0]

    fn = compiled(f)
    fn(x), fn(x)
    number.cache_clear()
    torch.testing.assert_close(fn(x), f(x))
    held(2)  # drops the result of the other call
    torch.testing.assert_close(fn(x), f(x))
    counters.clear()
    torch.testing.assert_close(fn(x), f(x))
    assert not counters["recompiles"]
    each = compiled(lambda a: a + none_kept(1))
    assert (each(x) + 1).equal(each(x))


# ---- operators of tensors with numbers of other classes ----


def test_a_tensor_is_asked_before_a_number_of_a_derived_class():
    class Level(enum.IntEnum):
        HIGH = 5

    class Share(float):
        pass

    def f(a):
        return a * Level.HIGH, a + Share(0.5), a < Level.HIGH

    fn = compiled(f)
    fn(x)
    for cls, name in ((Level, "__rmul__"), (Share, "__radd__"), (Level, "__gt__")):
        setattr(cls, name, lambda self, other: 8)
        for got, expected in zip(fn(x), f(x), strict=True):
            assert got is expected or torch.equal(got, expected)


def test_guards_on_slots_do_not_ask_the_class():
    class Slotted:
        __slots__ = ("a", "b")
        asked = itertools.count()

        def __getattribute__(self, name):
            return object.__getattribute__(self, name)

        def __getattr__(self, name):
            return next(Slotted.asked)

    slotted = Slotted()
    slotted.a = 1

    def f(x):
        return x * slotted.a, hasattr(type(slotted), "late")

    def reads_what_is_empty(x):
        try:
            return x * object.__getattribute__(slotted, "b")
        except AttributeError:
            return x - 1

    fns = [compiled(f), compiled(reads_what_is_empty)]
    first = [fn(x) for fn in fns]
    counters.clear()
    assert repr([fn(x) for fn in fns]) == repr(first)
    assert not counters["recompiles"] and not next(Slotted.asked)
    slotted.a, slotted.b = 2, 3
    assert torch.equal(fns[0](x)[0], x * 2) and torch.equal(fns[1](x), x * 3)


def test_arrays_while_another_device_is_the_default():
    def f(array):
        return array * 2, array.mean(), np.mean(array)

    fn, array = compiled(f), np.arange(3.0)
    assert repr(fn(array)) == repr(f(array))
    with torch.device("meta"):
        assert repr(fn(array)) == repr(f(array))


class Item:
    def __init__(self, number):
        self.number = number


A, B, C = Item(1), Item(1), Item(1)


def _function(number):
    def add(value):
        return value + number

    return add


G, H = _function(1), _function(1)  # two functions with the same code


def seen_once(items):
    seen, total = set(), 0
    for item in items:
        if item not in seen:
            seen.add(item)
            total += item.number
    return total


@pytest.mark.parametrize(
    ("fn", "calls"),
    [
        (lambda d, key: key in d, [({A: 1}, B), ({A: 1}, A)]),
        (lambda d, key: d.get(key, 5), [({A: 1}, B), ({A: 1}, A)]),
        (lambda d, key: dict(d).pop(key, 5), [({A: 1}, B), ({A: 1}, A)]),
        (lambda s, key: key in s, [({A}, B), ({A}, A), ({A, B}, A)]),
        (lambda items: len(set(items)), [([A, B, C],), ([A, B, A],)]),
        (lambda items: len({item: 1 for item in items}), [([A, B, C],), ([A, B, A],)]),
        (lambda items: len({id(item): 1 for item in items}), [([A, B, C],), ([A, B, A],)]),
        (lambda items: len({(item, 1): 1 for item in items}), [([A, B, C],), ([A, B, A],)]),
        (seen_once, [([A, B, C],), ([A, B, A],)]),
        (lambda a, b: {a: 1} == {b: 1}, [(A, B), (A, A)]),
        (lambda a, b: ({a} == {b}, {a} & {b} == {a}, {a}.isdisjoint({b})), [(A, B), (A, A)]),
        (lambda a, b: (a is b, a == b, a in [b], (a,) == (b,), {a: 1} == {b: 1}), [(G, H), (G, G), (H, G)]),
        (lambda a, b: (len({a, b}), len({id(a), id(b)}), len({(a, 1), (b, 1)})), [(H, H), (G, H)]),
        (lambda items, a: (items.index(a) if a in items else -1, items.count(a)), [([G, H], G), ([H, H], G)]),
        (lambda a, b: a.__init__ == b.__init__, [(A, B), (A, A)]),
    ],
)
def test_which_keys_are_the_same_object_is_guarded(fn, calls):
    def program(a, *args):
        return a + 1, fn(*args)

    run = compiled(program)
    for args in calls:
        assert run(x, *args)[1] == fn(*args), args


def counter(value):
    def add():
        nonlocal value
        value += 1

    def read():
        return value

    def tenfold():
        return value * 10

    return add, read, tenfold


class Names(list):
    pass


def _twice(function):
    return function, function


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize(
    ("fn", "calls"),
    [  # arguments created again for each run; in one call they share an object, in the other they do not
        (
            lambda add, read: (add(), read())[1],
            [lambda: (counter(1)[0], counter(1)[1]), lambda: counter(1)[:2]],
        ),
        (
            lambda read, tenfold: read() + tenfold(),
            [lambda: (counter(2)[1], counter(3)[2]), lambda: counter(2)[1:]],
        ),
        (
            lambda a, b: (a.append(1), len(b))[1],
            [lambda: (Names([1]), Names([1])), lambda: _twice(Names([1]))],
        ),
    ],
)
def test_which_arguments_share_an_object_is_guarded(fn, calls, first):
    run = compiled(lambda a, *args: (a + 1, fn(*args)))
    for make in (calls[first], calls[1 - first], calls[first]):
        assert run(x, *make())[1] == fn(*make())
