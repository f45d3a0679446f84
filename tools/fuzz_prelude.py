"""The source that every random program of `fuzz_frames.py` begins with: imports, classes and helper functions."""

# ruff: noqa: F401 the programs use what is imported

import bisect
import collections
import contextlib
import copy
import dataclasses
import enum
import functools
import heapq
import itertools
import operator
import re
import sys
import types

import torch

import pyframe

LOG = []
COUNT = 0
TABLE = {"a": 1, "b": 2}

class Custom(Exception):
    def __init__(self, code, note="?"):
        super().__init__(code, note)
        self.code = code

class Box:
    made = 0
    limit = 5
    def __init__(self, value, quiet=False):
        self.value, self.quiet = value, quiet
        type(self).made += 1
    @property
    def double(self):
        return self.value * 2
    @double.setter
    def double(self, new):
        self.value = new // 2
    @classmethod
    def of(cls, *parts):
        return cls(sum(parts))
    @staticmethod
    def clip(value):
        return min(value, 9)
    def bump(self, by=1, *, twice=False):
        self.value += by * (2 if twice else 1)
        return self
    def __add__(self, other):
        return type(self)(self.value + (other.value if isinstance(other, Box) else other))
    def __eq__(self, other):
        return isinstance(other, Box) and self.value == other.value
    def __hash__(self):
        return hash(self.value)
    def __len__(self):
        return abs(self.value) % 7
    def __getitem__(self, key):
        if key > self.limit:
            raise IndexError(key)
        return self.value + key
    def __contains__(self, item):
        return item == self.value
    def __call__(self, x):
        return x * self.value
    def __enter__(self):
        LOG.append(("enter", self.value))
        return self
    def __exit__(self, kind, error, trace):
        LOG.append(("exit", kind and kind.__name__))
        return self.quiet and kind is not None and issubclass(kind, (Custom, KeyError))
    def __getattr__(self, name):
        if name.startswith("lazy"):
            return len(name)
        raise AttributeError(name)

class Child(Box):
    def bump(self, by=1, **more):
        LOG.append("child")
        return super().bump(by + 1, **more)
    def __len__(self):
        return 1 + super().__len__()

@dataclasses.dataclass(order=True)
class Point:
    a: int
    b: int = 2
    seen: list = dataclasses.field(default_factory=list, compare=False)

class Color(enum.Enum):
    RED = 1
    BLUE = 2

Pair = collections.namedtuple("Pair", "left right")

@contextlib.contextmanager
def managed(value):
    LOG.append(("managed", value))
    try:
        yield value + 1
    except ValueError as error:
        LOG.append(("caught", str(error)))
        if value > 2:
            raise Custom(value) from error
    finally:
        LOG.append("closed")

def traced(fn):
    @functools.wraps(fn)
    def wrapper(*args, **kwargs):
        LOG.append(fn.__name__)
        return fn(*args, **kwargs)
    return wrapper

@traced
def scaled(x, by=2, *rest, shift=0, **more):
    return x * by + shift + sum(rest) + len(more)

class Table(dict):
    def __missing__(self, key):
        LOG.append(("missing", key))
        self[key] = len(self)
        return self[key]


class Stack(list):
    def push(self, item):
        self.append(item)
        return self

    def __iadd__(self, other):
        LOG.append("iadd")
        return super().__iadd__(other)


class Checked:
    """A descriptor that keeps a value within bounds."""

    def __set_name__(self, owner, name):
        self.slot = "_" + name

    def __get__(self, instance, owner=None):
        return self if instance is None else getattr(instance, self.slot, 0)

    def __set__(self, instance, value):
        if not -50 < value < 50:
            raise ValueError(f"{self.slot} out of bounds")
        setattr(instance, self.slot, value)

    def __delete__(self, instance):
        delattr(instance, self.slot)


class Meter:
    __slots__ = ("_level", "name")
    level = Checked()

    def __init__(self, level, name="m"):
        self.level, self.name = level, name

    def __bool__(self):
        return self.level > 1

    def __lt__(self, other):
        return self.level < other.level

    def __iter__(self):
        yield from range(self.level % 4)

    def __matmul__(self, other):
        return self.level * 10 + other

    __rmatmul__ = __matmul__

    def __format__(self, spec):
        return f"<{self.level:{spec or '02'}}>"

    def __setitem__(self, key, value):
        self.level += key + value

    def __delitem__(self, key):
        del self.level

    def __index__(self):
        return self.level % 3


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.linspace(0.5, 2, 4))
        self.register_buffer("seen", torch.zeros(()))
        self.calls, self.scale = 0, 2

    def forward(self, x, *, more=None):
        self.calls += 1
        self.seen += x.detach().sum()
        if more is not None:
            x = x + more
        return x * self.weight.detach() * self.scale if self.training else x * self.scale


NET = Net()


def collect(item, into=[], *, seen={}):  # noqa: B006  changed on purpose
    into.append(item)
    seen[item] = seen.get(item, 0) + 1
    return len(into) - 2 * seen[item]


def counter(start):
    total = start

    def add(by=1):
        nonlocal total
        total += by
        return total

    def peek():
        return total

    return add, peek


def echo(value):
    try:
        while value < 30:
            try:
                got = yield value
                value += got or 1
            except ValueError as error:
                LOG.append(("echo", str(error)))
                value += 7
    finally:
        value += 3
    return value


def closing(value):
    """A generator that tells when it is closed: for use where that does not depend on when it dies."""
    try:
        while True:
            value += yield value
    except GeneratorExit:
        LOG.append("closed")
        raise
    finally:
        LOG.append(value)


def relay(value):
    got = yield from echo(value)
    LOG.append(("relayed", got))
    yield got


class Ready:
    def __await__(self):
        got = yield "ready"
        return got


async def waits(value):
    async with Guarded(value):
        value += await Ready()
        value += sum([v async for v in ticks(value % 4)])
        if value > 9:
            raise Custom(value)
    return value


async def ticks(count):
    for i in range(count):
        await Ready()
        yield i


class Guarded:
    def __init__(self, value):
        self.value = value

    async def __aenter__(self):
        LOG.append("aenter")

    async def __aexit__(self, kind, error, trace):
        LOG.append(("aexit", kind and kind.__name__))
        return False


def drive(coroutine):
    sent = None
    for i in range(20):
        try:
            coroutine.send(sent)
        except StopIteration as stop:
            return stop.value
        sent = i
    coroutine.close()
    return -1


def repeat(times):
    def decorate(fn):
        @functools.wraps(fn)
        def wrapper(*args, **kwargs):
            for _ in range(times - 1):
                fn(*args, **kwargs)
            return fn(*args, **kwargs)

        return wrapper

    return decorate


@repeat(2)
def tick(by):
    global COUNT
    COUNT += by
    return COUNT


def depth_of(tree):
    if not isinstance(tree, list | tuple):
        return 0
    return 1 + max(map(depth_of, tree), default=0)


def power(x, n):
    if n <= 0:
        return x
    return power(x * 0.5, n - 1) + n


def even(n):
    return n == 0 or odd(abs(n) - 1)


def odd(n):
    return n != 0 and even(abs(n) - 1)


@functools.singledispatch
def kind(value):
    return "other"


@kind.register
def _(value: int):
    return "int"


@kind.register(list)
@kind.register(tuple)
def _(value):
    return "sequence"


def fails(value):
    try:
        raise KeyError(value)
    except KeyError as error:
        error.add_note(f"note {value}")
        if value > 2:
            raise Custom(value) from error
        if value > 1:
            raise ValueError(value) from None
        raise
