"""The programs of `tools/fuzz_guards.py`, composed of features: some definitions, and some statements that use them.

A feature is ``(definitions, statements)``. The statements run in the body of ``program(x)`` and append to ``out``.
``<a|b|c>`` is a choice that the seed makes.
"""

from __future__ import annotations

import random
import re

from guard_programs_more import MORE_FEATURES

HEADER = """
import abc, collections, contextlib, contextvars, copy, dataclasses, enum, functools, itertools, math, operator, os, sys
import numbers, random, re, threading, types, typing, warnings, weakref
import torch
import torch.nn.functional as F
from torch import nn
"""

INPUT = "torch.arange(6.0).reshape(2, 3).div(4).add(0.25)"

FEATURES: dict[str, tuple[str, str]] = {
    "globals": (
        "N, FLAG, WORD, RATE = <2|1|0>, <True|False>, 'word', <0.5|1.0|0.0>",
        """
if FLAG: out.append(x * N)
else: out.append(x + N)
out.append((x * RATE, WORD, len(WORD)))""",
    ),
    "functions": (
        """
def helper(x, by=2, *, plus=1): return x * by + plus
helper.mark = 3
def outer(x, *args, **kwargs): return helper(x, *args, **kwargs)""",
        "out.append((helper(x), outer(x, 3), outer(x, plus=2), helper.mark, helper.__name__, helper.__defaults__))",
    ),
    "closures": (
        """
def maker(n, items):
    def inner(x): return x * n + len(items)
    return inner
closed = maker(2, [1, 2])
def counter():
    count = 0
    def bump(x):
        nonlocal count
        count += 1
        return x + count
    return bump
bump = counter()""",
        "out.append(closed(x)); <out.append(bump(x))|pass>",
    ),
    "class": (
        """
class Base:
    limit = 3
    def scale(self, x): return x * self.limit
    @classmethod
    def make(cls): return cls()
    @staticmethod
    def plain(x): return x + 1
class Thing(Base):
    def __init__(self): self.value, self.items, self.maybe = 2, [1, 2], None
    @property
    def double(self): return self.value * 2
    def scale(self, x): return super().scale(x) + self.value
thing = Thing()""",
        """
out.append((thing.scale(x), thing.plain(x), thing.double, thing.limit, Thing.limit))
out.append(getattr(thing, 'absent', 5)); out.append(hasattr(thing, 'missing')); out.append(len(thing.items))
<out.append(thing.make().double)|out.append(Thing().scale(x))|out.append(Base.scale(thing, x))>
if thing.maybe is None: out.append(x - 1)""",
    ),
    "mixins": (
        """
class Named:
    kind = 'named'
    def describe(self): return self.kind
class Scaled:
    factor = 2
    def apply(self, x): return x * self.factor
class Shifted(Scaled):
    def apply(self, x): return super().apply(x) + 1
class Mixed(Named, Shifted):
    pass
mixed = Mixed()""",
        """
out.append((mixed.apply(x), mixed.describe(), mixed.factor))
out.append((isinstance(mixed, Scaled), issubclass(Mixed, Named)))""",
    ),
    "descriptors": (
        """
class Plain:
    def __init__(self, value): self.value = value
    def __get__(self, obj, owner=None): return self.value if obj is None else self.value + 1
class Data(Plain):
    def __set__(self, obj, value): obj.__dict__['stored'] = value
class Described:
    plain, data = Plain(2), Data(3)
    @functools.cached_property
    def cached(self): return self.plain + 10
described = Described()""",
        "out.append((x * described.plain, described.data, Described.plain, <described.cached|Described().cached>))",
    ),
    "metaclass": (
        """
class Meta(type):
    level = 2
    def __len__(cls): return 4
    @property
    def tall(cls): return cls.level + 1
    def helper(cls): return cls.__name__
class Made(metaclass=Meta):
    own = 1
    def __init__(self, n=1): self.n = n
made = Made()""",
        """
out.append((x * Made.level, len(Made), Made.tall, Made.helper(), Made.own))
out.append((isinstance(made, Made), Made(3).n))""",
    ),
    "abc": (
        """
class Shape(abc.ABC):
    @abc.abstractmethod
    def area(self): ...
class Square(Shape):
    def area(self): return 4
class Stray:
    size = 3
class Sized(typing.Protocol):
    size: int
square, stray = Square(), Stray()
Checked = typing.runtime_checkable(Sized)""",
        """
out.append(x * square.area()); out.append(isinstance(stray, Shape)); out.append(isinstance(square, Shape))
out.append(issubclass(Stray, Shape))
<out.append(isinstance(stray, collections.abc.Sized))|out.append(isinstance(stray, collections.abc.Callable))>
out.append(isinstance(stray, numbers.Number))""",
    ),
    "enums": (
        """
class Color(enum.Enum):
    RED, GREEN = 1, 2
    @property
    def bright(self): return self.value > 1
class Level(enum.IntEnum):
    LOW, HIGH = 1, 5
class Bits(enum.Flag):
    A, B = 1, 2
color, level, bits = Color.RED, Level.HIGH, Bits.A | Bits.B""",
        """
if color is Color.RED: out.append(x + color.value)
else: out.append(x - color.value)
out.append((color.name, color.bright, x * level, Level.LOW < level, Bits.A in bits, Color(2).name, len(Color)))""",
    ),
    "tuples": (
        """
Point = collections.namedtuple('Point', 'x y', defaults=(2,))
class Pair(typing.NamedTuple):
    a: int = 1
    b: float = 2.0
    def total(self): return self.a + self.b
point, pair = Point(1), Pair(3)""",
        """
out.append((x * point.x + point.y, pair.total(), pair[0], len(point)))
out.append((Point(4), point._replace(x=5), pair == (3, 2.0)))""",
    ),
    "dataclasses": (
        """
@dataclasses.dataclass
class Config:
    size: int = 2
    names: list = dataclasses.field(default_factory=lambda: ['a', 'b'])
    def total(self): return self.size + len(self.names)
@dataclasses.dataclass(frozen=True, order=True)
class Frozen:
    a: int = 1
    b: tuple = (1, 2)
config, frozen = Config(), Frozen()""",
        """
out.append((x * config.size, config.total(), frozen.b[0], frozen == Frozen(1), frozen < Frozen(2), Config(3).total()))
<out.append(dataclasses.replace(config, size=7).total())|out.append(config == Config())>""",
    ),
    "slots": (
        """
class Slotted:
    __slots__ = ('a', 'b')
    kind = 2
    def __init__(self): self.a = 1
    def get(self): return self.a + self.kind
slotted = Slotted()""",
        "out.append((x * slotted.a, slotted.get(), hasattr(slotted, 'b')))",
    ),
    "getattr": (
        """
class Lazy:
    known = 1
    def __init__(self): self.held = {'far': 3}
    def __getattr__(self, name):
        if name.startswith('__'): raise AttributeError(name)
        return self.held.get(name, 7)
class Watched:
    base = 2
    def __init__(self): self.own = 5
    def __getattribute__(self, name): return object.__getattribute__(self, name)
lazy, watched = Lazy(), Watched()""",
        "out.append((x * lazy.far, lazy.known, lazy.other, watched.own, watched.base))",
    ),
    "protocols": (
        """
class Box:
    def __init__(self, items): self.items = items
    def __len__(self): return len(self.items)
    def __getitem__(self, i): return self.items[i]
    def __iter__(self): return iter(self.items)
    def __contains__(self, item): return item in self.items
    def __call__(self, x): return x + len(self.items)
    def __add__(self, other): return len(self.items) + other
    def __enter__(self): return self
    def __exit__(self, *exc): return False
class Bare:
    weight = 2
box, bare = Box([1, 2]), Bare()""",
        """
if box: out.append(x + 1)
if bare: out.append(x * bare.weight)
out.append((len(box), box[0], [x * i for i in box], 1 in box, box(x), box + 1, callable(bare)))
with box as held: out.append(x * held[1])
out.append(f'{type(bare).__name__}'); <out.append(bool(not bare))|out.append(any([box, bare]))>""",
    ),
    "equality": (
        """
class Key:
    def __init__(self, n): self.n = n
    def __eq__(self, other): return isinstance(other, Key) and self.n == other.n
    def __hash__(self): return hash(self.n)
    def __lt__(self, other): return self.n < other.n
    def __repr__(self): return f'Key({self.n})'
class Identity:
    n = 1
key, identity, keyed = Key(1), Identity(), {'a': 1, 2: 3}
members = [Key(2), Key(1)]""",
        """
out.append((key == Key(1), key in members, sorted(members)[0].n, identity == identity, identity != key, str(key)))
out.append((x * min(members).n, keyed.get('a'), members.index(key), {identity: 4}.get(identity)))""",
    ),
    "modules": (
        """
class Block(nn.Module):
    depth = 1
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(3, 3)
        self.act = <nn.ReLU()|nn.GELU()|nn.Tanh()>
        self.register_buffer('shift', torch.ones(3))
        self.gain = nn.Parameter(torch.full((3,), 2.0))
        self.flag, self.sizes = True, [1, 2]
    @property
    def size(self): return self.sizes[0]
    def forward(self, x):
        y = self.act(self.lin(x)) * self.gain
        return y + self.shift if self.flag else y * self.size
torch.manual_seed(1)
net = nn.Sequential(Block(), <nn.Dropout(0.0)|nn.LayerNorm(3)|nn.Identity()>, nn.Linear(3, 2))<.eval()|>""",
        "out.append(net(x)); out.append((net[0].size, net[0].depth, net.training, len(net)))",
    ),
    "module_lists": (
        """
class Stack(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(3, 3) for _ in range(2)])
        self.table = nn.ModuleDict({'a': nn.Tanh(), 'b': nn.Sigmoid()})
        self.weights = nn.ParameterList([torch.ones(3), torch.ones(3) * 2])
        self.choice = 'a'
    def forward(self, x):
        for layer in self.layers: x = layer(x)
        for weight in self.weights: x = x * weight
        for name, p in self.named_parameters(recurse=False): x = x + p.sum()
        return self.table[self.choice](x)
torch.manual_seed(2)
stack = Stack()""",
        "out.append(stack(x)); out.append(sum(p.numel() for p in stack.parameters()))",
    ),
    "batch_norm": (
        "torch.manual_seed(3)\nnorm = nn.Sequential(nn.BatchNorm1d(3), nn.Dropout(0.0))<.eval()|>",
        "out.append(norm(x))",
    ),
    "odd_module": (
        """
class Odd(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(3, 3, bias=<True|False>)
        self.extra = {'k': 2}
    def __getattr__(self, name):
        if name == 'computed': return 9
        return super().__getattr__(name)
    def helper(self, x): return self.inner(x) * self.computed + self.extra['k']
    def forward(self, x, scale=1): return self.helper(x) * scale
torch.manual_seed(4)
odd = Odd()""",
        "out.append(odd(x)); out.append(odd(x, scale=2)); out.append(hasattr(odd, 'nothing'))",
    ),
    "torch_functions": (
        "def act(x): return F.relu(x) + F.gelu(x)",
        """
out.append(torch.sin(x) + x.cos()); out.append(act(x)); out.append(x.add(1).mul(2)); out.append(x + torch.zeros(3))
out.append(F.<softmax|log_softmax>(x, dim=-1)); out.append(x[0].size()); out.append(x.<T|mT|shape|dtype|ndim>)
out.append(torch.<stack|cat>([x, x])); out.append(torch.is_tensor(x))""",
    ),
    "tensor_subclass": (
        """
class Tagged(torch.Tensor):
    tag = 2
    def doubled(self): return self * self.tag
tagged = torch.ones(3).as_subclass(Tagged)""",
        "out.append(tagged.doubled()); out.append(tagged + 1); out.append(isinstance(tagged, Tagged))",
    ),
    "library": (
        """
NUMBERS = [4, 9]
def add(a, b): return a + b
part = functools.partial(add, 3)
@functools.lru_cache
def remembered(n): return n * 3
@functools.singledispatch
def dispatched(value): return 1
@dispatched.register
def _(value: int): return value + 5
def logged(fn):
    @functools.wraps(fn)
    def inner(*args): return fn(*args) + 1
    return inner
@logged
def decorated(x): return x * 2
@contextlib.contextmanager
def managed(n): yield n + 1""",
        """
out.append(x * math.sqrt(NUMBERS[0]) + math.floor(2.5)); out.append(functools.reduce(operator.mul, NUMBERS))
out.append(operator.itemgetter(1)(NUMBERS)); out.append(part(4)); out.append(remembered(2)); out.append(dispatched(3))
out.append(list(itertools.chain(NUMBERS, [1]))); out.append(decorated(x)); out.append(copy.copy(NUMBERS))
with managed(2) as m: out.append(x * m)""",
    ),
    "builtins": (
        "VALUES, PAIRS = [3, 1, 2], {'a': 1, 'b': 2}",
        """
out.append((len(VALUES), sum(VALUES), max(VALUES), sorted(VALUES), list(reversed(VALUES)), list(range(3))))
out.append([x * a + b for a, b in zip(VALUES, PAIRS.values())]); out.append([k for k in enumerate(PAIRS)])
out.append((isinstance(VALUES, list), getattr(VALUES, 'sort', None) is None, abs(-2), int('3'), str(4), type(PAIRS)))
out.append((any(VALUES), all(PAIRS), list(map(str, VALUES)), hasattr(PAIRS, 'keys'), round(2.5), min(PAIRS)))""",
    ),
    "containers": (
        """
TABLE = {'a': 1, 'b': {'c': [1, 2]}}
ORDER = collections.OrderedDict(a=1, b=2)
QUEUE = collections.deque([1, 2], maxlen=4)
BAG = collections.defaultdict(list, k=[1])
UNIQUE, FIXED = {1, 2, 3}, frozenset(['p', 'q'])
COUNTS = collections.Counter('aab')
CHAIN = collections.ChainMap({'z': 1}, {'y': 2})
PROXY = types.MappingProxyType(TABLE)
NEST = [[1, [2, 3]], (4, {'d': 5})]""",
        """
out.append(x * TABLE['a'] + TABLE['b']['c'][-1]); out.append([x * v for v in ORDER.values()]); out.append(list(ORDER))
out.append((QUEUE[0], len(QUEUE), QUEUE.maxlen, BAG['k'], len(UNIQUE), 2 in UNIQUE, 'p' in FIXED, COUNTS['a']))
out.append((CHAIN['y'], PROXY['a'], NEST[0][1][0], NEST[1][1]['d'], TABLE.get('w', 3), list(TABLE), sum(UNIQUE)))""",
    ),
    "subclassed_containers": (
        """
class Items(list):
    extra = 1
    def total(self): return sum(self) + self.extra
class Table(dict):
    def __missing__(self, key): return 6
class Text(str):
    def shout(self): return self.upper()
class Whole(int):
    def half(self): return self // 2
items, table, text, whole = Items([1, 2]), Table(a=1), Text('t'), Whole(4)""",
        """
out.append((x * items.total(), table['a'], table['zz'], text.shout()))
out.append((whole.half() + whole, len(items), text == 't'))""",
    ),
    "python_modules": (
        """
made_up = types.ModuleType('made_up_module')
made_up.value, made_up.fn, made_up.deep = 3, (lambda x: x + 2), types.ModuleType('made_up_module.deep')
made_up.deep.number = 4
sys.modules['made_up_module'] = made_up
sys.modules['made_up_module.deep'] = made_up.deep
SETTINGS = types.SimpleNamespace(scale=2, inner=types.SimpleNamespace(on=True))""",
        """
import made_up_module
from made_up_module import fn as imported
import made_up_module.deep as deep
out.append((x * made_up.value, imported(x), made_up_module.value, deep.number, getattr(made_up, 'none', 1)))
if SETTINGS.inner.on: out.append(x * SETTINGS.scale)""",
    ),
    "surroundings": (
        """
os.environ['MADE_UP'] = 'one'
variable = contextvars.ContextVar('variable', default=2)
local = threading.local()
local.value = 3
random.seed(1)""",
        """
out.append(os.environ.get('MADE_UP')); out.append('MADE_UP' in os.environ); out.append(x * variable.get())
out.append(local.value); <out.append(x * random.random())|out.append(x + torch.rand(3))|pass>
out.append('made_up_module' in sys.modules)""",
    ),
    "settings": (
        "",
        """
out.append(torch.zeros(3) + 1); out.append(torch.tensor(1.5)); out.append(torch.get_default_dtype())
out.append(torch.is_grad_enabled()); out.append(torch.arange(3) / 2); out.append(x @ x.mT)
out.append(torch.get_num_threads()); out.append(torch.are_deterministic_algorithms_enabled())
out.append(torch.backends.cudnn.enabled); out.append(torch.get_float32_matmul_precision())
out.append(torch.is_autocast_enabled('cpu')); out.append(torch.is_inference_mode_enabled())""",
    ),
    "tensors": (
        """
torch.manual_seed(5)
weight = torch.ones(3)
param = nn.Parameter(torch.full((3,), 2.0))
grid = torch.arange(12.0).reshape(3, 4)[:, :3]
weight.mark = 2
held = {'t': torch.ones(2, 3), 'list': [torch.zeros(3)]}
leaf = torch.ones(3, requires_grad=True)""",
        """
out.append(x * weight + param); out.append(x @ grid); out.append(weight.mark); out.append(held['t'] + x)
out.append((weight.requires_grad, param.is_leaf, grid.stride(), grid.is_contiguous(), leaf.grad is None, weight.dtype))
out.append(held['list'][0] * leaf); out.append(grid.storage_offset()); out.append(weight.shape[0] * x)""",
    ),
    "weakrefs": (
        """
class Referred: value = 3
referred = Referred()
ref = weakref.ref(referred)
cache = weakref.WeakKeyDictionary({referred: 4})""",
        """
if ref() is not None: out.append(x * ref().value)
else: out.append(x)""",
    ),
    "construction": (
        """
class Built:
    made = 0
    def __new__(cls, *args): return super().__new__(cls)
    def __init__(self, n=2): self.n = n
    def __init_subclass__(cls): cls.sub = True
class Child(Built):
    def __init__(self, n=2):
        super().__init__(n)
        self.m = n + 1
class Generic(typing.Generic[typing.TypeVar('T')]):
    def __class_getitem__(cls, item): return item""",
        """
out.append((x * Built().n, Child(4).m, Child().n))
out.append((type(Child()) is Child, Child.sub, isinstance(Child(), Built)))""",
    ),
    "matching": (
        """
class Node:
    __match_args__ = ('left', 'right')
    def __init__(self, left, right): self.left, self.right = left, right
node, shape = Node(1, [2, 3]), {'kind': 'a', 'n': 2}""",
        """
match node:
    case Node(1, [a, b]): out.append(x * a + b)
    case Node(left=l): out.append(l)
    case _: out.append('none')
match shape:
    case {'kind': 'a', 'n': n}: out.append(x * n)
    case _: out.append('other')""",
    ),
    "texts": (
        """
class Shown:
    def __str__(self): return 'shown'
    def __repr__(self): return 'repr'
    def __format__(self, spec): return 'format' + spec
shown, PATTERN = Shown(), re.compile('a+')""",
        """
out.append((str(shown), f'{shown:>3}', f'{shown!r}', '%s' % shown, bool(PATTERN.match('aab'))))
out.append((Shown.__name__, Shown.__doc__))""",
    ),
    "exceptions": (
        """
class Fault(ValueError):
    code = 3
def risky(n):
    if n > 1: raise Fault(n)
    return n
LEVEL = 2""",
        """
try: out.append(risky(LEVEL))
except ValueError as error: out.append((x * error.code, error.args))
finally: out.append(x)""",
    ),
    "generators": (
        """
STEPS = [1, 2]
def steps(x):
    for n in STEPS: yield x * n
class Walk:
    def __iter__(self):
        yield 1
        yield 2
walk = Walk()""",
        """
out.append(list(steps(x))); out.append([x + n for n in walk])
out.append(sum(walk)); out.append(next(steps(x)))""",
    ),
    "bound": (
        """
class Holder:
    n = 2
    def go(self, x): return x * self.n
    def __call__(self, x): return x - self.n
holder = Holder()
bound, table_of = holder.go, {'f': holder.go, 'g': math.floor}
partial_method = functools.partial(holder.go)""",
        "out.append((bound(x), table_of['f'](x), table_of['g'](2.5), partial_method(x), holder(x), bound.__self__.n))",
    ),
}

FEATURES.update(MORE_FEATURES)


def chosen(text: str, rng: random.Random) -> str:
    """`text` with each choice made."""
    return re.sub(r"<([^<>\n]*\|[^<>\n]*)>", lambda match: rng.choice(match[1].split("|")), text)


def program(seed: int) -> tuple[list[str], str]:
    """The names of the features of a seed, and the text of its module, which defines ``program(x)``."""
    rng = random.Random(seed)
    names = rng.sample(sorted(FEATURES), rng.choice((1, 2, 2, 3)))
    parts = [tuple(chosen(text, rng) for text in FEATURES[name]) for name in names]
    body = [line for _, use in parts for line in use.strip("\n").split("\n")]
    lines = [HEADER.strip("\n"), *(definitions.strip("\n") for definitions, _ in parts), "", "def program(x):"]
    return names, "\n".join([*lines, "    out = []", *(f"    {line}" for line in body), "    return out", ""])
