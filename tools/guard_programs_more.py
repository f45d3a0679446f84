"""More features of the programs of `tools/fuzz_guards.py`, for other things that a program can read from Python and
torch.

``guard_programs`` describes the form.
"""

from __future__ import annotations

MORE_FEATURES: dict[str, tuple[str, str]] = {
    "functional": (
        """
matrix, offset = torch.full((2, 3), 0.5), torch.ones(2)
rows = torch.arange(8.0).reshape(4, 2)
def layers(x):
    y = F.linear(x, matrix, offset)
    return F.dropout(F.layer_norm(y, (2,)), 0.5, False)""",
        """
out.append(layers(x)); out.append(F.pad(x, (1, 0))); out.append(F.<silu|leaky_relu|elu|softplus>(x))
out.append(F.embedding(torch.tensor([0, 2]), rows)); out.append(F.mse_loss(x, x * 2)); out.append(F.normalize(x))""",
    ),
    "post_init": (
        """
@dataclasses.dataclass
class Settings:
    width: int = 2
    scale: float = 0.5
    kind: str = 'plain'
    tags: tuple = ('a',)
    def __post_init__(self): self.area = self.width * 3
@dataclasses.dataclass(slots=True)
class Tight:
    depth: int = 1
@dataclasses.dataclass
class Wide(Settings):
    extra: int = dataclasses.field(default=4, kw_only=True)
settings, tight = Settings(), Tight()""",
        """
out.append((x * settings.area, Settings(3).area, tight.depth, Wide(extra=2).extra, settings == Settings()))
if settings.kind == 'plain': out.append(x * settings.scale)
out.append(<[f.name for f in dataclasses.fields(settings)]|dataclasses.asdict(settings)|repr(settings)>)""",
    ),
    "partials": (
        """
def combine(a, b=1, *, by=2): return a * b + by
part, nested = functools.partial(combine, b=3), functools.partial(functools.partial(combine, by=5), b=2)
class Parts:
    base = 2
    def go(self, n, by=1): return self.base * n + by
    twice = functools.partialmethod(go, 2)
    named = functools.partialmethod(go, by=4)
parts = Parts()""",
        """
out.append((part(x), nested(x), parts.twice(), parts.named(3)))
out.append((part.args, part.keywords, part.func is combine))""",
    ),
    "order": (
        """
SEEN = collections.OrderedDict([('b', 2), ('a', 1)])
LINE = collections.deque([3, 4, 5])
SPAN, CUT = range(1, 4), slice(0, 2)
WORDS, LETTERS = {'p', 'q'}, frozenset('ab')
VOTES = collections.Counter('abca')""",
        """
out.append([x * v for v in SEEN.values()]); out.append((list(SEEN), next(iter(SEEN)), LINE[0], list(LINE), LINE[-1]))
out.append((x[CUT], len(SPAN), SPAN[1], sum(SPAN), 'p' in WORDS, sorted(WORDS), len(LETTERS), VOTES['a'], 2 in SPAN))
out.append((SEEN == {'a': 1, 'b': 2}, list(reversed(LINE)), VOTES.most_common(1), CUT.stop, SPAN == range(1, 4)))""",
    ),
    "overriding_containers": (
        """
class Names(dict):
    default = 7
    def __missing__(self, key): return self.default
    def __getitem__(self, key): return super().__getitem__(key)
class Row(list):
    def __len__(self): return super().__len__() + 1
    def __iter__(self): return iter([item * 2 for item in super().__iter__()])
class Pair(tuple):
    def swap(self): return Pair((self[1], self[0]))
class Ordered(collections.OrderedDict): pass
class Queue(collections.UserList): pass
names, row, pair, ordered, queue = Names(a=1), Row([1, 2]), Pair((1, 2)), Ordered(z=3), Queue([1])""",
        """
out.append((x * names['a'], names['none'], names.get('b', 4), 'a' in names, len(row), [r for r in row], sum(row)))
out.append((pair.swap()[0], ordered['z'], list(ordered), queue[0], len(queue), row == [1, 2], pair + (3,)))""",
    ),
    "arrays": (
        """
import numpy as np
TABLE_OF = np.arange(3.0, dtype=np.float32)
COUNT = np.int64(3)
MASK = np.array([True, False, True])""",
        """
out.append(x * torch.from_numpy(TABLE_OF)); out.append(TABLE_OF.sum()); out.append(TABLE_OF.shape)
out.append(x * int(COUNT)); out.append(TABLE_OF[MASK].tolist()); out.append(x + float(np.<mean|max|std>(TABLE_OF)))""",
    ),
    "streams": (
        """
def numbers_from(n):
    while True:
        yield n
        n += 1
stream, once = numbers_from(1), iter([5, 6, 7, 8, 9])
def double(items): return (2 * item for item in items)""",
        """
out.append(x * <next(stream)|next(once)>); out.append(list(double([1, 2]))); out.append(next(double([4])))
out.append(sum(n for n in range(3)))""",
    ),
    "registry": (
        """
HANDLERS = {}
def handler(name):
    def register(fn):
        HANDLERS[name] = fn
        return fn
    return register
@handler('add')
def plus(x, n=1): return x + n
@handler('mul')
def times(x, n=2): return x * n
class Plugin:
    known = []
    def __init_subclass__(cls, **kwargs): Plugin.known.append(cls)
    def run(self, x): return x
class First(Plugin):
    def run(self, x): return super().run(x) + 1
class Second(First):
    def run(self, x): return super().run(x) * 2
NAME = 'add'""",
        """
out.append(HANDLERS[NAME](x)); out.append([fn(x) for fn in HANDLERS.values()]); out.append(list(HANDLERS))
for plugin in Plugin.known: out.append(plugin().run(x))""",
    ),
    "operators": (
        """
class Vec:
    def __init__(self, a): self.a = a
    def __add__(self, other): return Vec(self.a + getattr(other, 'a', other))
    __radd__ = __add__
    def __mul__(self, other): return Vec(self.a * other)
    def __neg__(self): return Vec(-self.a)
    def __matmul__(self, other): return self.a * other.a
    def __getitem__(self, key): return (self.a, key)
    def __iadd__(self, other): return Vec(self.a + other)
    def __le__(self, other): return self.a <= other.a
    def __int__(self): return int(self.a)
    def __abs__(self): return abs(self.a)
class Late(Vec):
    def __radd__(self, other): return Vec(100)
v, w = Vec(2), Late(3)""",
        """
out.append(((v + w).a, (1 + v).a, (v * 3).a, (-v).a, v @ w, v[1:2], v <= w, int(v), abs(w), (v + v).a))
u = Vec(1); u += 4; out.append(u.a); out.append(x * (v + 1).a)""",
    ),
    "default_arguments": (
        """
def collects(x, items=[1, 2], table={'k': 3}): return x * items[0] + table['k']
def keywords(x, *, scale=2, names=('a', 'b')): return x * scale + len(names)
makers = [lambda x, i=i: x + i for i in range(2)]
def outer(n):
    def inner(x, m=n): return x * m + n
    return inner
nested = outer(3)""",
        "out.append((collects(x), keywords(x), [make(x) for make in makers], nested(x), collects.__defaults__[0][1]))",
    ),
    "contexts": (
        """
class Scope:
    depth, log = 1, []
    def __enter__(self): return self.depth
    def __exit__(self, *exc): return exc[0] is not None
@contextlib.contextmanager
def scaled(by):
    yield by * 2
scope = Scope()
@torch.no_grad()
def quiet(x): return x * 2
leaf = torch.ones(3, requires_grad=True)""",
        """
with scope as depth: out.append(x * depth)
with scaled(2) as by: out.append(x + by)
with contextlib.ExitStack() as stack: out.append(stack.enter_context(scope))
with contextlib.suppress(ValueError): out.append(int('3'))
with torch.no_grad(): out.append(leaf * 2)
out.append(quiet(leaf)); out.append(leaf * x)
with scope: raise ValueError('left')""",
    ),
    "caches": (
        """
@functools.cache
def squared(n): return n * n
class Caches:
    n = 3
    @functools.lru_cache(maxsize=4)
    def kept(self, k): return self.n + k
    @functools.cached_property
    def lazy(self): return self.n * 5
    @functools.singledispatchmethod
    def kind(self, value): return 'any'
    @kind.register
    def _(self, value: int): return 'int'
caches = Caches()
@functools.total_ordering
class Rank:
    def __init__(self, r): self.r = r
    def __eq__(self, other): return self.r == other.r
    def __lt__(self, other): return self.r < other.r
one, two = Rank(1), Rank(2)""",
        """
out.append((x * squared(3), caches.kept(2), Caches().lazy, caches.lazy, caches.kind(1), caches.kind('a')))
out.append((one < two, one >= two, sorted([two, one])[0].r))""",
    ),
    "weak_tables": (
        """
class Thing:
    size = 2
    def method(self, x): return x * self.size
kept, other = Thing(), Thing()
by_name = weakref.WeakValueDictionary(a=kept)
ref, bound_ref = weakref.ref(other), weakref.WeakMethod(kept.method)
group = weakref.WeakSet([kept])""",
        """
out.append(x * by_name['a'].size); out.append(len(group)); out.append('a' in by_name)
held = ref()
out.append(x if held is None else x + held.size)""",
    ),
    "module_getattr": (
        """
made_up = types.ModuleType('made_up_dynamic')
made_up.value = 3
def _dynamic(name):
    if name == 'found': return 5
    raise AttributeError(name)
made_up.__getattr__ = _dynamic
sys.modules['made_up_dynamic'] = made_up
package = types.ModuleType('made_up_package')
package.__path__ = []
package.inner = types.ModuleType('made_up_package.inner')
package.inner.depth = 2
sys.modules['made_up_package'], sys.modules['made_up_package.inner'] = package, package.inner""",
        """
import made_up_dynamic
import made_up_package.inner
from made_up_package import inner as found_inner
out.append((x * made_up_dynamic.value, made_up_dynamic.found, getattr(made_up_dynamic, 'lost', 1)))
out.append((made_up_package.inner.depth, found_inner.depth))
try:
    from made_up_package import nothing
except ImportError: out.append('not there')""",
    ),
    "copies": (
        """
class Copied:
    def __init__(self, n): self.n, self.items = n, [n]
    def __copy__(self): return Copied(self.n + 1)
class Deep:
    def __init__(self): self.items, self.table = [1, [2]], {'k': (3,)}
source, deep = Copied(2), Deep()""",
        """
out.append((copy.copy(source).n, copy.deepcopy(deep).items, copy.copy(deep).table, x * copy.copy(source).n))
out.append(<copy.deepcopy(source).items|copy.copy([1, 2])|copy.deepcopy({'a': [1]})>)""",
    ),
    "named_descriptors": (
        """
class Field:
    def __init__(self, default): self.default = default
    def __set_name__(self, owner, name): self.name = '_' + name
    def __get__(self, obj, owner=None):
        return self if obj is None else getattr(obj, self.name, self.default)
    def __set__(self, obj, value): setattr(obj, self.name, value * 2)
    def __delete__(self, obj): delattr(obj, self.name)
class Form:
    width, height = Field(2), Field(3)
    def __init__(self): self.width = 4
    @property
    def area(self): return self.width * self.height
    @area.setter
    def area(self, value): self.width = value
form = Form()""",
        """
out.append((x * form.area, form.width, Form().height, Form.width.default))
made = Form(); made.area = 3; out.append(made.width)""",
    ),
    "parameter_tables": (
        """
class Bank(nn.Module):
    def __init__(self):
        super().__init__()
        self.tables = nn.ParameterDict({'a': torch.ones(3), 'b': torch.full((3,), 2.0)})
        self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)
        self.second.weight = self.first.weight
        self.register_buffer('steps', torch.tensor(2), persistent=False)
        self.config = types.SimpleNamespace(mode='sum', layers=[1, 2])
    def forward(self, x):
        y = self.second(self.first(x)) * self.tables['a'] + self.tables['b']
        if self.config.mode == 'sum': y = y + sum(self.config.layers)
        for name, buffer in self.named_buffers(): y = y * buffer
        for child in self.children(): y = y + (1 if child.training else 0)
        return y
torch.manual_seed(6)
bank = Bank()<.eval()|>""",
        """
out.append(bank(x)); out.append(list(bank.state_dict())); out.append(bank.first.weight is bank.second.weight)
out.append(<len(list(bank.parameters()))|[name for name, _ in bank.named_children()]>)""",
    ),
    "parametrized": (
        """
class Doubling(nn.Module):
    def forward(self, w): return w * 2
torch.manual_seed(7)
plain, inner = nn.Linear(3, 2), nn.Sequential(nn.Linear(3, 3), nn.ReLU())
torch.nn.utils.parametrize.register_parametrization(plain, 'weight', Doubling())
inner[0].register_forward_hook(lambda module, args, output: output + 1)
inner.register_forward_pre_hook(lambda module, args: (args[0] * 2,))""",
        "out.append(plain(inner(x))); out.append(type(plain).__name__); out.append(len(inner[0]._forward_hooks))",
    ),
    "aliases": (
        """
first = torch.ones(2, 3)
second, view = torch.zeros(2, 3), first[:, :2]
pool = [first, second]
def writes(x, t): return t.add(x).mul(2)""",
        """
out.append(writes(x, first) + second); out.append(view * 2); out.append(first is pool[0]); out.append(pool[1] + x)
out.append((first.data_ptr() == second.data_ptr(), view._base is first, first.is_contiguous()))""",
    ),
    "type_checks": (
        """
class A: n = 1
class B(A): n = 2
class C: n = 3
KINDS, item, second = (A, C), B(), C()
def pick(value):
    if isinstance(value, KINDS): return type(value).n
    return 0
Alias = typing.Union[int, str]""",
        """
out.append((x * pick(item), pick(second), isinstance(item, A), issubclass(B, A), type(item) is B, B.__mro__[1].n))
out.append((isinstance(3, int | str), item.__class__.__name__, B.__bases__[0] is A, isinstance(x, torch.Tensor)))""",
    ),
}
