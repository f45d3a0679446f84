"""A short run of tools/fuzz_guards.py: what programs depend on is changed between calls."""

from __future__ import annotations

import random

import fuzz_guards
import guard_programs
import pytest
import torch
from guard_changes import Change

PLAIN = "import torch\nN = 2\ndef program(x):\n    return x * N\n"


@pytest.mark.parametrize("seed", [2])
def test_changes_of_a_random_program(seed):
    wrong = [tried for tried in fuzz_guards.try_program(seed, 20, ["pyframe"]) if not tried.right["pyframe"]]
    assert not wrong


CHANGES = {
    "a method of getattribute": ("thing.value", "Thing.__getattribute__ = lambda s, name: 9 if name == 'value' else object.__getattribute__(s, name)"),
    "an initializer that is replaced": ("Thing().value", "Thing.__init__ = lambda self: setattr(self, 'value', 3)"),
    "a builtin of a function that is called": ("total()", "globals()['sum'] = lambda items: 40"),
    "a base that is added": ("thing.value", "Thing.__bases__ = (type('Data', (), {'value': property(lambda s: 5)}),)"),
    "a field beside a module": ("net(X)", "net.__dict__['inner'] = torch.nn.Tanh()"),
    "a class attribute over a module": ("net(X)", "Net.inner = torch.nn.Tanh()"),
    "__call__ of all modules": ("net(X)", "torch.nn.Module.__call__ = lambda self, x: x - 1"),
    "a registration": ("isinstance(thing, Shape)", "Shape.register(Thing)"),
    "a function of torch": ("torch.zeros(3)", "torch.zeros = lambda n, fn=torch.zeros: fn(n) + 1"),
    "code of a function of torch": ("F.relu(X)", "F.relu.__code__ = (lambda *args, **kwargs: 7).__code__"),
    "what a function of torch reads": ("torch.is_tensor(X)", "torch.Tensor = dict"),
    "a method of tensors": ("X.sin()", "torch.Tensor.sin = lambda self: 5"),
    "an operator of tensors": ("X + 1", "torch.Tensor.__add__ = lambda self, other: 5"),
    "code of a property": ("thing.double", "Thing.double.fget.__code__ = (lambda self: 7).__code__"),
    "a value of a member": ("Color.RED.value", "Color.RED._value_ = 8"),
    "a property of an enumeration": ("Color.RED.bright", "Color.bright = property(lambda self: 6)"),
    "members of an enumeration": ("len(Color)", "Color._member_names_ = []"),
    "values of an enumeration": ("Color(1)", "Color._value2member_map_[1] = Color.GREEN"),
    "a deleted __new__": ("Built(2).n", "del Built.__new__"),
    "a staticmethod in place of a method": ("bound.__self__ is thing", "globals()['bound'] = staticmethod(bound)"),
    "a hash that is taken away": ("{thing: 4}.get(thing)", "Thing.__hash__ = None"),
    "the length of a namedtuple": ("Point._make([1, 2])", "Point.__len__ = lambda self: 0"),
    "a cell of a namedtuple": ("Point(1, 2)", "Point.__new__.__defaults__ = None; Point.__new__.__code__ = (lambda *args: 1).__code__"),
    "arguments of an exception": ("fault()", "Fault.args = property(lambda self: 23)"),
    "what C keeps for a class": ("isinstance(thing, Shape)", "Shape._abc_impl = 28"),
    "__getattr__ of a class with slots": ("hasattr(slotted, 'b')", "Slotted.__getattr__ = lambda self, name: 11"),
    "a classmethod for __new__": ("Point._make([3, 4])", "Point.__new__ = classmethod(lambda cls, *args: 5)"),
    "__getattr__ of a metaclass": ("getattr(Made, 'absent', 1)", "Meta.__getattr__ = lambda cls, name: 16"),
    "a function of a cached property": ("cached.lazy", "Cached.lazy.func = lambda self: 6"),
    "what all modules read": ("net(X)", "torch.nn.modules.module.torch = abc"),
    "an ordered dict with attributes": ("list(ordered.values())", "ordered.__dict__['values'] = 42"),
    "a member that answers any name": ("X * Level.HIGH", "Level.__getattr__ = lambda self, name: 11"),
    "an __iter__ that gives no iterator": ("[i for i in walk]", "Walk.__iter__ = lambda self: 4"),
    "a function that the capture asks": ("torch.is_grad_enabled()", "torch.is_grad_enabled = lambda: False"),
    "the name of a class": ("Thing.__name__", "Thing.__name__ = 'Other'"),
    "a module that is replaced": ("imported()", "sys.modules['made_up'] = types.SimpleNamespace(value=4)"),
    "an attribute that a module lacked": ("getattr(made_up, 'absent', 1)", "made_up.absent = 2"),
    "dtype of a view": ("tagged + 1", "tagged.data = torch.ones(3, dtype=torch.complex64)"),
}
SETUP = """
import abc, collections, enum, functools, sys, torch, types
import torch.nn.functional as F
X = torch.ones(3)
class Base: pass
class Thing(Base):
    def __init__(self): self.value = 2
    @property
    def double(self): return self.value * 2
    def method(self): return 1
class Color(enum.Enum):
    RED, GREEN = 1, 2
    @property
    def bright(self): return self.value > 1
class Built:
    def __new__(cls, *args): return super().__new__(cls)
    def __init__(self, n): self.n = n
class Slotted:
    __slots__ = ('a', 'b')
class Meta(type): pass
class Made(metaclass=Meta): pass
class Fault(ValueError): pass
def fault():
    try: raise Fault(2)
    except Fault as error: return error.args
Point = collections.namedtuple('Point', 'x y', defaults=(2,))
slotted = Slotted()
class Cached:
    @functools.cached_property
    def lazy(self): return 1
class Uncached:
    def __getattr__(self, name): return getattr(Cached(), name)
cached = Uncached()
class Level(enum.IntEnum):
    LOW, HIGH = 1, 5
class Walk:
    def __iter__(self): return iter([1, 2])
walk, ordered = Walk(), collections.OrderedDict(a=1)
made_up = sys.modules['made_up'] = types.ModuleType('made_up')
made_up.value = 3
def imported():
    import made_up
    return made_up.value
class Tagged(torch.Tensor): pass
tagged = torch.ones(3).as_subclass(Tagged)
class Shape(abc.ABC): pass
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Identity()
    def forward(self, x): return self.inner(x)
def total(): return sum([1, 2])
thing, net = Thing(), Net()
bound = thing.method
def program(x):
    return x * 2, EXPRESSION
"""


def test_found_changes(monkeypatch):
    """What the tool has found, all in one program, each change in a fork of it."""
    text = SETUP.replace("EXPRESSION", ", ".join(dict.fromkeys(expression for expression, _ in CHANGES.values())))
    changes = [Change(name, change) for name, (_, change) in CHANGES.items()]
    monkeypatch.setattr(fuzz_guards, "program", lambda seed: ([], text))
    monkeypatch.setattr(fuzz_guards, "found_changes", lambda text, seed: changes)
    tried = fuzz_guards.try_program(0, len(changes), ["pyframe"])
    assert {t.kind for t in tried if t.matters} == set(CHANGES)
    assert [t.kind for t in tried if not t.right["pyframe"]] == []


def test_a_change_that_is_missed_is_found(monkeypatch):
    """A capture that never looks at its guards is caught."""
    monkeypatch.setattr(fuzz_guards, "program", lambda seed: (["plain"], PLAIN))
    monkeypatch.setattr(fuzz_guards, "found_changes", lambda text, seed: [Change("global", "N = 5")])

    def remembers(how, fn):
        first = []
        return fn if how == "eager" else lambda x: first[0] if first else first.append(fn(x)) or first[0]

    monkeypatch.setattr(fuzz_guards, "compiled_by", remembers)
    (tried,) = fuzz_guards.try_program(0, 4, ["pyframe"])
    assert tried.matters and not tried.right["pyframe"]


def test_every_feature_runs():
    for name, (definitions, use) in guard_programs.FEATURES.items():
        module: dict = {}
        random.seed(0)
        texts = [guard_programs.chosen(part, random.Random(0)) for part in (definitions, use)]
        body = "\n".join(f"    {line}" for line in ["pass", *texts[1].strip("\n").split("\n")])
        exec(f"{guard_programs.HEADER}\n{texts[0]}\ndef program(x, out):\n{body}", module)
        out: list = []
        module["program"](torch.ones(2, 3), out)
        assert out, name
