"""Whatever a captured program read is changed afterwards: the next call must be as eager, so the old entry not used."""

from __future__ import annotations

import collections
import copy
import dataclasses
import functools
import random
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import pyframe
from pyframe import testing

NUMBER = 2
TABLE = {"a": 1, "b": {"c": 2}}
ITEMS = [1, 2, 3]
SETTING = types.SimpleNamespace(scale=2, inner=types.SimpleNamespace(on=True))
PAIR = (1, [2, 3])
NAMES = {"x", "y"}
ORDER = collections.OrderedDict(a=1, b=2)
QUEUE = collections.deque([1, 2])
MODULE = types.ModuleType("made_up")
MODULE.value = 3
VECTOR = torch.ones(3)


def helper(x, by=2, *, plus=1):
    return x * by + plus


def other(x, by=2, *, plus=1):
    return x - by - plus


class Thing:
    limit = 3
    hook = None

    def __init__(self):
        self.value, self.items = 1, [1, 2]

    @property
    def double(self):
        return self.value * 2

    def method(self, x):
        return x * self.value + self.limit


class Sub(Thing):
    pass


@dataclasses.dataclass
class Point:
    a: int = 1
    b: tuple = (1, 2)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin, self.drop = nn.Linear(3, 3), nn.Dropout(0.5)
        self.flag, self.sizes = True, [1, 2]
        self.layers = nn.ModuleList([nn.Linear(3, 3), nn.Tanh()])
        self.register_buffer("shift", torch.ones(3))

    def forward(self, x):
        x = self.lin(x) + self.shift if self.flag else x - self.shift
        for layer in self.layers:
            x = layer(x)
        return x * self.sizes[0]


def cell():
    n, items = 2, [1, 2]

    def change():
        nonlocal n
        n += 5
        items.append(n)

    return lambda x: x * n + len(items), change


CASES: dict[str, Callable[[], tuple[Callable[[Any], Any], Callable[[], Any]]]] = {}


def case(make):
    CASES[make.__name__] = make
    return make


def setter(target, name, value):
    return lambda: setattr(target, name, value)


@case
def globals_():
    return [
        (lambda x: x * NUMBER, lambda: globals().update(NUMBER=7)),
        (lambda x: x * NUMBER, lambda: globals().update(NUMBER=True)),
        (lambda x: x * TABLE["a"], lambda: TABLE.update(a=5)),
        (lambda x: x * TABLE["b"]["c"], lambda: TABLE["b"].update(c=9)),
        (lambda x: x * len(TABLE), lambda: TABLE.update(new=1)),
        (lambda x: x * TABLE.get("z", 2), lambda: TABLE.update(z=8)),
        (lambda x: x + 1 if "q" in TABLE else x, lambda: TABLE.update(q=1)),
        (lambda x: [x * v for v in TABLE.values() if isinstance(v, int)], lambda: TABLE.pop("a")),
        (lambda x: x * ITEMS[-1], lambda: ITEMS.append(6)),
        (lambda x: x * ITEMS[0], lambda: ITEMS.__setitem__(0, 4)),
        (lambda x: x * sum(ITEMS), lambda: ITEMS.pop()),
        (lambda x: x * PAIR[1][0], lambda: PAIR[1].insert(0, 9)),
        (lambda x: x * len(NAMES), lambda: NAMES.add("z")),
        (lambda x: x + 1 if "x" in NAMES else x, lambda: NAMES.discard("x")),
        (lambda x: [x * len(k) * v for k, v in ORDER.items()], lambda: ORDER.move_to_end("a")),
        (lambda x: x * QUEUE[0], lambda: QUEUE.rotate(1)),
        (lambda x: x * MODULE.value, setter(MODULE, "value", 11)),
        (lambda x: x * SETTING.scale, setter(SETTING, "scale", 5)),
        (lambda x: x + 1 if SETTING.inner.on else x, setter(SETTING.inner, "on", False)),
        (lambda x: x + VECTOR, lambda: globals().update(VECTOR=torch.ones(3, dtype=torch.float64))),
        (lambda x: x * VECTOR.shape[0], lambda: globals().update(VECTOR=torch.ones(1))),
        (lambda x: x + getattr(SETTING, "later", 1), lambda: setattr(SETTING, "later", 4)),
        (lambda x: x + hasattr(SETTING, "new"), lambda: setattr(SETTING, "new", 4)),
        (lambda x: x + len(ITEMS), lambda: globals().update(len=lambda items: 40)),
    ]


@case
def functions():
    def partial(x):
        return bound(x)

    bound = functools.partial(helper, by=3)
    swapped = types.FunctionType(helper.__code__, globals(), "swapped", (2,))
    swapped.__kwdefaults__ = {"plus": 1}
    changing, change = cell()
    return [
        (lambda x: helper(x), setter(helper, "__defaults__", (5,))),
        (lambda x: helper(x), lambda: helper.__kwdefaults__.update(plus=9)),
        (lambda x: swapped(x), setter(swapped, "__code__", other.__code__)),
        (lambda x: helper(x), lambda: globals().update(helper=other)),
        (partial, lambda: bound.keywords.update(by=8)),
        (changing, change),
        (lambda x: changing(x), change),
        (lambda x, n=TABLE: x * n.get("a", 3), lambda: TABLE.update(a=30)),
    ]


@case
def objects():
    thing, sub, point = Thing(), Sub(), Point()
    return [
        (lambda x: x * thing.value, setter(thing, "value", 4)),
        (lambda x: x * thing.double, setter(thing, "value", 5)),
        (lambda x: x * len(thing.items), lambda: thing.items.append(1)),
        (lambda x: x * thing.limit, setter(Thing, "limit", 6)),
        (lambda x: x * thing.limit, setter(thing, "limit", 7)),
        (lambda x: x * sub.limit, setter(Sub, "limit", 8)),
        (lambda x: sub.method(x), setter(Sub, "method", lambda self, x: x - 5)),
        (lambda x: thing.method(x), setter(thing, "method", lambda x: x + 40)),
        (lambda x: x * sub.double, setter(Sub, "double", property(lambda self: 50))),
        (lambda x: x + 1 if sub.hook is None else x, setter(Thing, "hook", 1)),
        (lambda x: x + isinstance(sub, Sub), setter(sub, "__class__", Thing)),
        (lambda x: x * point.a + point.b[0], lambda: vars(point).update(a=3, b=(5,))),
        (lambda x: x + Thing.limit, setter(Thing, "limit", 12)),
    ]


@case
def modules():
    def one(change):
        net = Net().eval()
        return lambda x: net(x), lambda: change(net)

    def hook(module, args, output):
        return output * 3

    return [
        one(lambda net: setattr(net, "flag", False)),
        one(lambda net: net.sizes.__setitem__(0, 3)),
        one(lambda net: setattr(net.layers, "0", nn.Identity())),
        one(lambda net: net.layers.append(nn.Tanh())),
        one(lambda net: net.layers.__delitem__(0)),
        one(lambda net: net.lin.register_forward_hook(hook)),
        one(lambda net: net.lin.register_forward_pre_hook(lambda module, args: (args[0] * 2,))),
        one(lambda net: net.register_forward_hook(hook)),
        one(lambda net: setattr(net, "lin", nn.Linear(3, 3, bias=False))),
        one(lambda net: setattr(net.lin, "bias", None)),
        one(lambda net: setattr(net.lin, "weight", nn.Parameter(torch.ones(3, 3)))),
        one(lambda net: net.lin._parameters.update(weight=nn.Parameter(torch.zeros(3, 3)))),
        one(lambda net: setattr(net.lin.weight, "data", torch.full((3, 3), 2.0))),
        one(lambda net: setattr(net.lin.weight, "data", torch.full((5, 3), 2.0)[:3].T)),
        one(lambda net: net.requires_grad_(False)),
        one(lambda net: net._buffers.update(shift=torch.zeros(3))),
        one(lambda net: setattr(net, "shift", torch.zeros(1))),
        one(lambda net: net.shift.mul_(3).resize_(1)),
        one(lambda net: setattr(net, "forward", lambda x: x + 9)),
        one(lambda net: setattr(Net, "forward", lambda self, x: x - 9)),
        one(lambda net: setattr(net, "__class__", type("Net2", (Net,), {"forward": lambda self, x: x * 9}))),
        one(lambda net: net.double()),
    ]


@case
def modes():
    weight = torch.ones(3, requires_grad=True)

    def made(x):
        return torch.arange(3.0) + x, torch.get_default_dtype()

    def autocast(x):
        return torch.ones(3, 3) @ torch.ones(3, 3), torch.is_autocast_enabled("cpu")

    def attention(x):
        return x + torch.backends.cuda.flash_sdp_enabled()

    return [
        (attention, lambda: torch.backends.cuda.enable_flash_sdp(False)),
        (lambda x: x * weight, lambda: torch.set_grad_enabled(False)),
        (made, lambda: torch.set_default_dtype(torch.float64)),
        (autocast, lambda: torch.set_autocast_enabled("cpu", True)),
        (lambda x: x * weight, lambda: weight.requires_grad_(False)),
    ]


def described(value):
    if isinstance(value, torch.Tensor):
        return value.dtype, tuple(value.shape), value.requires_grad, value.tolist()
    return [described(v) for v in value] if isinstance(value, list | tuple) else value


def outcome(fn, x):
    try:
        return described(fn(x))
    except (AttributeError, IndexError, KeyError, RuntimeError, TypeError) as error:
        return type(error).__name__, str(error)


@pytest.fixture(autouse=True)
def untouched():
    """Every case changes the world: put it back."""
    before = {name: copy.deepcopy(globals()[name]) for name in
              ("NUMBER", "TABLE", "ITEMS", "SETTING", "PAIR", "NAMES", "ORDER", "QUEUE", "VECTOR")}  # fmt: skip
    classes = [(cls, dict(vars(cls))) for cls in (Thing, Sub, Net)]
    functions = (helper.__defaults__, dict(helper.__kwdefaults__))
    original, value = helper, MODULE.value
    yield
    globals().update(before, helper=original)
    globals().pop("len", None)
    MODULE.value = value
    helper.__defaults__, helper.__kwdefaults__ = functions
    for cls, members in classes:
        for name in set(vars(cls)) - set(members):
            delattr(cls, name)
        for name, member in members.items():
            if name not in ("__dict__", "__weakref__") and vars(cls).get(name) is not member:
                setattr(cls, name, member)
    torch.set_grad_enabled(True)
    torch.backends.cuda.enable_flash_sdp(True)
    torch.set_default_dtype(torch.float32)
    torch.set_autocast_enabled("cpu", False)


COUNTS = {"globals_": 24, "functions": 8, "objects": 13, "modules": 22, "modes": 5}


@pytest.mark.parametrize("group, index", [(g, i) for g, n in COUNTS.items() for i in range(n)])
def test_a_change_is_noticed(group, index):
    torch.manual_seed(0)
    cases = CASES[group]()
    assert len(cases) == COUNTS[group]
    fn, change = cases[index]
    x = torch.arange(3.0)
    counter = testing.CompileCounter()
    compiled = pyframe.compile(fn, backend=counter)
    before = outcome(fn, x)
    assert outcome(compiled, x) == before
    captured = counter.frame_count
    assert outcome(compiled, x) == before and counter.frame_count == captured  # a hit
    change()
    after = outcome(fn, x)
    got = outcome(compiled, x)
    assert got == after
    assert after != before, "the change must show in the result"


SOURCES = ("TABLE['a']", "ITEMS[0]", "SETTING.scale", "thing.value", "thing.limit", "NUMBER", "len(ITEMS)", "PAIR[1][0]",
           "sum(thing.items)", "len(NAMES)", "helper(1)", "point.a", "inner['k']", "Sub.limit")  # fmt: skip
CHANGES = ("TABLE['a'] += 1", "ITEMS[0] += 1", "SETTING.scale += 1", "thing.value += 1", "Thing.limit += 1",
           "globals().update(NUMBER=NUMBER + 1)", "ITEMS.append(1)", "PAIR[1][0] += 1", "thing.items.append(2)",
           "NAMES.add(len(NAMES))", "helper.__kwdefaults__['plus'] += 1", "point.a += 1", "inner['k'] += 1")  # fmt: skip


@pytest.mark.parametrize("seed", range(20))
def test_random_reads_and_changes(seed):
    """A program of random reads, then random changes one after another."""
    rng = random.Random(seed)
    reads = rng.sample(SOURCES, 5)
    names = {**globals(), "thing": Sub(), "point": Point(), "inner": {"k": 1}}
    exec("def program(x):\n" + "".join(f"    x = x * 2 + {read}\n" for read in reads) + "    return x", names)
    names["globals"] = lambda: names
    fn = names["program"]
    compiled = pyframe.compile(fn, backend="eager", options={"recompile_limit": 50})
    x = torch.arange(3.0)
    for change in ["pass", *rng.choices(CHANGES, k=8)]:
        exec(change, names)
        for _ in range(2):
            assert compiled(x).tolist() == fn(x).tolist(), (reads, change)
