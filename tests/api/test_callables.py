"""Anything that can be called compiles: results, captures, names, pickling, classes in place."""

from __future__ import annotations

import asyncio
import collections
import copy
import dataclasses
import functools
import inspect
import math
import operator
import pickle

import pytest
import torch
from torch import nn

import pyframe
from pyframe.metrics import counters

x = torch.linspace(-1, 1, 6).reshape(2, 3)


def scaled(a, b, *, c=1):
    return a * b + c


class Scale:
    """Multiplies."""

    def __init__(self, by):
        self.by = by

    def __call__(self, x, *, plus=1):
        return x.sin() * self.by + plus

    def method(self, x):
        return x * self.by

    @classmethod
    def of_class(cls, x):
        return x + 1

    @staticmethod
    def static(x):
        return x + 2


class Exponential(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        result = x.exp()
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.saved_tensors[0]


class Net(nn.Module):
    def __init__(self):
        super(Net, self).__init__()  # noqa: UP008  as many programs have it
        self.linear = nn.Linear(3, 3)

    def forward(self, x):
        return self.linear(x).relu()

    def repeated(self, x, times=2):
        for _ in range(times):
            x = self(x)
        return x


net = Net()
Pair = collections.namedtuple("Pair", "a b")
GRAPHS = {
    "builtin": (torch.sin, (x,)),
    "functional": (nn.functional.relu, (x,)),
    "operator": (operator.add, (x, x)),
    "partial": (functools.partial(functools.partial(scaled, c=5), x), (x,)),
    "partial of C": (functools.partial(torch.add, alpha=2), (x, x)),
    "partial of a module": (functools.partial(net, x), ()),
    "object": (Scale(2), (x,)),
    "bound": (Scale(2).method, (x,)),
    "bound call": (Scale(2).__call__, (x,)),
    "class method": (Scale.of_class, (x,)),
    "static method": (Scale.__dict__["static"], (x,)),
    "forward": (net.forward, (x,)),
    "method of a module": (net.repeated, (x,)),
    "method of a tensor": (x.add, (x,)),
    "unbound method in C": (torch.Tensor.sin, (x,)),
    "overload": (torch.ops.aten.sin.default, (x,)),
    "packet": (torch.ops.aten.sin, (x,)),
    "apply": (Exponential.apply, (x,)),
    "apply, recorded": (Exponential.apply, (x.clone().requires_grad_(),)),
    "vmap": (torch.vmap(torch.sin), (x,)),
    "decorated": (torch.no_grad()(scaled), (x, x)),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_captured_whole(name):
    fn, args = GRAPHS[name]
    compiled = pyframe.compile(fn, fullgraph=True, backend="eager")
    for _ in range(2):
        torch.testing.assert_close(compiled(*args), fn(*args))
    assert counters["graphs"] == 1


@pytest.mark.parametrize(
    ("fn", "args"),
    [
        (math.sqrt, (4.0,)), (len, ([1, 2],)), (max, (1, 2)), ("a".join, (["b", "c"],)), (int, ("3",)), (Pair, (1, 2)),
        (operator.attrgetter("shape"), (x,)), (operator.itemgetter(0), ([1],)), (functools.lru_cache(len), ((1,),)),
        (list, ((1, 2),)),
    ],
)  # fmt: skip
def test_runs_without_tensors(fn, args):
    assert pyframe.compile(fn)(*args) == fn(*args)


def test_scripted_functions_run_as_they_are():
    @torch.jit.script
    def scripted(x):
        return x.sin() + 1

    torch.testing.assert_close(pyframe.compile(scripted)(x), scripted(x))


def test_numpy_ufunc():
    np = pytest.importorskip("numpy")
    np.testing.assert_allclose(pyframe.compile(np.add)(x.numpy(), 1), x.numpy() + 1)


def test_coroutines_and_generators():
    async def later(x):
        return x + 1

    def each(x):
        yield x + 1
        yield x + 2

    torch.testing.assert_close(asyncio.run(pyframe.compile(later)(x)), x + 1)
    torch.testing.assert_close(list(pyframe.compile(each)(x)), [x + 1, x + 2])


@pytest.mark.parametrize("fn", [scaled, torch.sin, Scale(2), functools.partial(scaled, x), net.forward])
def test_looks_like_what_it_calls(fn):
    compiled = pyframe.compile(fn, backend="eager")
    assert compiled.__wrapped__ is fn or compiled.__wrapped__ == fn
    assert compiled.__name__ == getattr(fn, "__name__", type(fn).__name__) and compiled.__doc__ == fn.__doc__
    try:
        expected = inspect.signature(fn)
    except ValueError:  # of most functions in C
        return
    assert inspect.signature(compiled) == expected


def test_compiled_again_is_compiled_once():
    compiled = pyframe.compile(pyframe.compile(functools.partial(scaled, x)), backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), scaled(x, x))
    assert isinstance(compiled.__wrapped__, functools.partial) and counters["graphs"] == 1


def test_what_torch_compile_made_is_compiled_itself():
    theirs = torch.compile(scaled, backend="eager")
    compiled = pyframe.compile(theirs, backend="eager")
    assert compiled.__wrapped__ is scaled

    @functools.wraps(theirs)
    def around(a, b):
        return -scaled(a, b)

    assert pyframe.compile(around).__wrapped__ is around
    assert type(pyframe.compile(torch.compile(net, backend="eager"))).__mro__[2] is Net


@pytest.mark.parametrize("fn", [functools.partial(scaled, x), Scale(2), torch.sin, Scale(3).method])
def test_pickled_where_eager_can_be(fn):
    compiled = pyframe.compile(fn, backend="eager")
    for again in (pickle.loads(pickle.dumps(compiled)), copy.deepcopy(compiled)):
        torch.testing.assert_close(again(x), fn(x))


def helper(a):
    return a * 2 + 1


renamed = pyframe.compile(helper, backend="eager")
disabled = pyframe.disable(helper)


@pyframe.compile(backend="eager")
def decorated(a):
    return a * 3


decorated_again = pyframe.compile(decorated, backend="eager")


@pytest.mark.parametrize("fn", [renamed, disabled, decorated_again, decorated])
def test_functions_under_another_name_are_pickled(fn):
    again = pickle.loads(pickle.dumps(fn))
    assert type(again) is type(fn) and again.__wrapped__ is fn.__wrapped__
    torch.testing.assert_close(again(x), fn(x))
    assert (again is fn) == (fn is decorated)
    assert copy.copy(fn) is fn and copy.deepcopy(fn) is fn


def test_functions_without_a_name_are_not_pickled():
    with pytest.raises((AttributeError, pickle.PicklingError), match="local"):
        pickle.dumps(pyframe.compile(lambda a: a + 1))


def test_copies_of_objects_are_compiled():
    compiled = pyframe.compile(Scale(2), backend="eager")
    shallow, deep = copy.copy(compiled), copy.deepcopy(compiled)
    assert shallow.__wrapped__ is compiled.__wrapped__ and deep.__wrapped__ is not compiled.__wrapped__
    torch.testing.assert_close(shallow(x), deep(x))


def test_wrapper_of_a_compiled_function_is_pickled_as_itself():
    @functools.wraps(renamed)
    def around(a):
        return renamed(a)

    around.__qualname__ = "around"
    assert "_pyframe_reduced" in vars(around)  # as `functools.wraps` does with every attribute
    with pytest.raises(pickle.PicklingError):
        pickle.dumps(pyframe.disable(around))


def test_not_callable():
    with pytest.raises(pyframe.errors.UserError, match="got list"):
        pyframe.compile([1])


# ---- classes ----
def test_class_of_modules_stays_itself():
    class Mine(Net):
        pass

    class Sub(Mine):
        def __call__(self, x):
            return super().__call__(x) * 2

    assert pyframe.compile(Mine, backend="eager", fullgraph=True) is Mine
    mine, sub = Mine(), Sub()
    torch.testing.assert_close(mine(x), mine.forward(x))
    assert counters["graphs"] == 1
    torch.testing.assert_close(sub(x), sub.forward(x) * 2)
    both = pyframe.compile(nn.Sequential(mine, sub), fullgraph=True, backend="eager")
    torch.testing.assert_close(both(x), sub.forward(mine.forward(x)) * 2)
    mine(x).sum().backward()
    assert mine.linear.weight.grad is not None


def test_a_class_of_torch_stays_compiled_after_reset():
    """As with torch.compile, whoever compiles a class of torch changes it for the whole process: `reset` drops captures."""
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    assert "__call__" not in vars(nn.Sequential)
    try:
        pyframe.compile(nn.Sequential, backend="eager")
        pyframe.reset()
        net(torch.ones(2, 4))
        assert counters["graphs"] == 1
        pyframe.reset()
        around = pyframe.compile(lambda a: net(a) + 1, backend="eager", fullgraph=True)
        torch.testing.assert_close(around(torch.ones(2, 4)), net(torch.ones(2, 4)) + 1)
    finally:
        del nn.Sequential.__call__
    pyframe.reset()
    net(torch.ones(2, 4))
    assert counters["graphs"] == 0


def test_class_without_call_is_captured_where_it_is_initialized():
    @pyframe.compile(fullgraph=True, backend="eager")
    class Wave:
        def __init__(self, x, *, plus=1):
            self.y = x.sin() + plus

    class Twice(Wave):
        def __init__(self, x):
            super().__init__(x, plus=2)
            self.y = self.y * 2

    assert isinstance(Wave(x), Wave) and counters["graphs"] == 1
    torch.testing.assert_close(Wave(x).y, x.sin() + 1)
    traced = pyframe.compile(lambda x: Twice(x).y, fullgraph=True, backend="eager")
    torch.testing.assert_close(traced(x), (x.sin() + 2) * 2)
    assert list(inspect.signature(Wave).parameters) == ["x", "plus"]


def test_dataclass():
    @pyframe.compile
    @dataclasses.dataclass
    class Point:
        a: int
        b: int = 2

    assert Point(1) == Point(1, 2) and dataclasses.replace(Point(1), a=3).a == 3


class Methods:
    @pyframe.compile(backend="eager")
    def plain(self, x):
        return x + 1

    @pyframe.compile(backend="eager")
    @staticmethod
    def static(x):
        return x + 2

    @pyframe.compile(backend="eager")
    @classmethod
    def of_class(cls, x):
        return x + 3

    @classmethod
    @pyframe.compile(backend="eager")
    def inside(cls, x):
        return x + 4


class Derived(Methods):
    def plain(self, x):
        return super().plain(x) * 2

    def static(self, x):
        return super().static(x) * 2

    def of_class(self, x):
        return super().of_class(x) * 2

    def inside(self, x):
        return super().inside(x) * 2


@pytest.mark.parametrize(("name", "plus"), [("plain", 1), ("static", 2), ("of_class", 3), ("inside", 4)])
def test_compiled_methods_of_a_class(name, plus):
    def call(obj, x):
        return getattr(obj, name)(x)

    traced = pyframe.compile(call, fullgraph=True, backend="eager")
    for obj, factor in ((Methods(), 1), (Derived(), 2)):
        torch.testing.assert_close(call(obj, x), (x + plus) * factor)
        torch.testing.assert_close(traced(obj, x), (x + plus) * factor)


def test_a_compiled_function_known_by_two_names_is_one():
    inner = pyframe.compile(scaled, backend="eager")
    table = {"a": inner, "b": inner}

    def both(x):
        return table["a"](x, x) + table["b"](x, 2)

    compiled = pyframe.compile(both, fullgraph=True, backend="eager")
    for _ in range(3):
        torch.testing.assert_close(compiled(x), scaled(x, x) + scaled(x, 2))
    assert counters["graphs"] == 1 and counters["recompiles"] == 0


@pytest.mark.parametrize("transform", [torch.func.grad, torch.vmap, torch.func.jacrev, torch.func.jacfwd, torch.func.hessian])
def test_a_transformed_function_compiles(transform):
    transformed = transform(lambda v: (v.sin() * v).sum())
    compiled = pyframe.compile(transformed, fullgraph=True, backend="eager")
    for _ in range(2):
        torch.testing.assert_close(compiled(x), transformed(x))


def test_a_shallow_copy_of_a_compiled_module_has_its_own_attributes():
    module = pyframe.compile(torch.nn.Sequential(torch.nn.Dropout(0.9)), backend="eager")
    module(x)
    other = copy.copy(module)
    other.training = False
    assert module.training and type(other).__mro__[1] is type(module).__mro__[1]
    torch.testing.assert_close(other[0].eval() and other(x), x)
    assert other[0] is module[0]
